"""The kube-proxy that these tests run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxylab.binaries.binary import Binary, inspect
from proxylab.binaries.choose import Sources
from proxylab.binaries.module import RELEASE


@pytest.fixture(scope="session")
def kube_proxy() -> Binary:
    """The newest release of the cache, where `./dev test` puts one; or the file that LAB_KUBE_PROXY names."""
    named = os.environ.get("LAB_KUBE_PROXY", "")
    if os.path.isfile(named):
        return inspect(Path(named), named)
    cached = [each for each in Sources.of_user().obtained() if RELEASE.fullmatch(each.version)]
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    return cached[-1]


@pytest.fixture
def binary(
    kube_proxy: Binary, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Binary]:
    """Where an ordinary user can run it, too."""
    folder = Path("/tmp") / f"kube-proxy-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    there = folder / "kube-proxy"
    shutil.copy(kube_proxy.path, there)
    monkeypatch.setenv("TEST_KUBE_PROXY", str(there))
    yield replace(kube_proxy, path=there)
    shutil.rmtree(folder)
