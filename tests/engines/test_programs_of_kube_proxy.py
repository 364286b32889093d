"""``programs`` with the real kube-proxy: it runs the nft and iptables of its node, also one that aborts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from node_programs import ABORTS, MARKER, folder_for_all, machine, marks, program, scenario
from shared_sessions import shared_session

from proxylab.binaries.binary import Binary
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import EngineError


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_all() as made:
        yield made


def choice(binary: Binary, mode: str, iptables: str = "") -> EngineChoice:
    upstream = Upstream(str(binary.path), binary.identity)
    return EngineChoice(f"kube-proxy/{mode}", upstream=upstream, iptables=iptables)


def test_kube_proxy_in_mode_nftables_runs_the_nft_of_its_node(kube_proxy: Binary, folder: Path) -> None:
    nft = program(folder, "nft", f'echo "$own $*" >>{MARKER}\nexec {machine("nft")} "$@"')
    told = marks(choice(kube_proxy, "nftables"), scenario("", of_node=f"{{nft: {nft}}}"))
    assert "nft -f -" in told["node-a"]
    assert told["node-b"] == ""


def test_kube_proxy_in_mode_iptables_runs_the_iptables_of_its_scenario(kube_proxy: Binary, folder: Path) -> None:
    body = f'echo "$own $*" >>{MARKER}\nexec {machine("xtables-nft-multi")} "$own" "$@"'
    given = scenario(f"{{iptables: {program(folder, 'multi', body)}}}")
    told = marks(choice(kube_proxy, "iptables", "nft"), given)
    for node in ("node-a", "node-b"):
        assert "\niptables-restore -w 5" in told[node]
        assert "\nip6tables-restore -w 5" in told[node]


def test_an_nft_that_aborts_is_named_by_its_words(kube_proxy: Binary, folder: Path) -> None:
    nft = program(folder, "nft", ABORTS.format(machine("nft")))
    with shared_session(choice(kube_proxy, "nftables")) as session, pytest.raises(EngineError) as caught:
        session.open(scenario(f"{{nft: {nft}}}"))
    assert "kube-proxy could not load its rules: " in str(caught.value)
    assert "nft: evaluate.c:1: Assertion failed" in str(caught.value)
