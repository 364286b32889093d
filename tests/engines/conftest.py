"""The kube-proxy that these tests run."""

import os

import pytest

from lab.binaries.binary import Binary, inspect
from lab.binaries.cache import Cache


@pytest.fixture(scope="session")
def kube_proxy() -> Binary:
    """The newest of the cache, where `./dev test` puts one; or the file that LAB_KUBE_PROXY names."""
    named = os.environ.get("LAB_KUBE_PROXY", "")
    if os.path.isfile(named):
        from pathlib import Path

        return inspect(Path(named), named)
    cached = Cache.of_user().binaries()
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    return cached[-1]
