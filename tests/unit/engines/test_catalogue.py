"""Every name a user may ask for has an engine behind it, and every engine has a name."""

import pytest

from proxylab.engines import catalogue
from proxylab.engines.names import ENGINES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import InternalError


def test_names_and_engines_are_the_same() -> None:
    assert tuple(catalogue._MAKERS) == ENGINES


def test_a_name_that_slipped_through_is_our_fault() -> None:
    with pytest.raises(InternalError, match=r"no engine 'kube-proxy/ebpf'.* There are embedded/iptables"):
        catalogue.make_engine(EngineChoice("kube-proxy/ebpf"), "node-a", None, None)  # type: ignore[arg-type]
