"""Every name that a user may give has an engine behind it."""

from importlib import import_module

import pytest

from proxylab.engines import catalogue
from proxylab.engines.engine_names import ENGINES, mode_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, InternalError


def test_the_mode_of_every_engine_is_in_the_table_and_has_its_work_on_a_node() -> None:
    assert set(MODES) == {mode_of(name) for name in ENGINES}
    for mode in MODES.values():
        assert callable(import_module(f"{mode.package}.node").ON_NODE)


def test_a_name_that_slipped_through_is_our_fault() -> None:
    with pytest.raises(InternalError, match=r"no engine 'kube-proxy/ebpf'.* There are embedded/iptables"):
        catalogue.make_engine(EngineChoice("kube-proxy/ebpf"), "node-a", None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "engine", ["embedded@v1.23/iptables", "kube-proxy@v1.23.17/iptables", "kube-proxy@v1.28/iptables"]
)
def test_no_version_runs_in_a_mode_that_came_later(engine: str) -> None:
    with pytest.raises(ValueError, match=rf"kube-proxy has mode nftables since 1.29, and this is {engine}"):
        EngineChoice(engine).in_mode("nftables")
    assert EngineChoice(engine).in_mode("iptables").name == engine
    assert EngineChoice("kube-proxy@v1.29/iptables").in_mode("nftables").name == "kube-proxy@v1.29/nftables"


def test_an_embedded_engine_of_a_version_lacks_modes_that_the_version_has() -> None:
    cure = "choose embedded/iptables or kube-proxy@v1.34/iptables"
    with pytest.raises(CapabilityError, match=rf"embedded@v1\.34/nftables.*\n?.*{cure}"):
        EngineChoice("embedded@v1.34/iptables").in_mode("nftables")


def test_no_kube_proxy_runs_in_a_mode_that_it_has_no_more() -> None:
    with pytest.raises(ValueError, match=r"kube-proxy has mode userspace up to 1\.25, and this is kube-proxy@v1\.26"):
        EngineChoice("kube-proxy@v1.26/iptables").in_mode("userspace")
    assert EngineChoice("kube-proxy@v1.25.16/iptables").in_mode("userspace").name == "kube-proxy@v1.25.16/userspace"
    assert EngineChoice("embedded/userspace").in_mode("iptables").in_mode("userspace").name == "embedded/userspace"
