"""``programs``: the nft and iptables of a scenario, which a node's proxy and commands run in place of the machine's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from node_programs import ABORTS, MARKER, folder_for_all, machine, marks, program, scenario
from shared_sessions import shared_session

from proxylab.engines.engine_names import IPTABLES_VARIANTS
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import EngineError, ScenarioError
from proxylab.verdict.model import Judgement


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_all() as made:
        yield made


def test_an_embedded_proxy_of_mode_nftables_loads_by_the_nft_of_its_node(folder: Path) -> None:
    nft = program(folder, "nft", f'echo "$own $*" >>{MARKER}\nexec {machine("nft")} "$@"')
    told = marks(EngineChoice("embedded/nftables"), scenario("", of_node=f"{{nft: {nft}}}"))
    assert "nft --file -" in told["node-a"]
    assert "list" not in told["node-a"], "the lab lists rules by the machine's own"
    assert told["node-b"] == ""


@pytest.mark.parametrize("variant", IPTABLES_VARIANTS)
def test_an_embedded_proxy_of_mode_iptables_loads_by_the_iptables_of_its_scenario(folder: Path, variant: str) -> None:
    restore, ip6 = machine(f"iptables-{variant}-restore"), machine(f"ip6tables-{variant}-restore")
    plain = machine(f"iptables-{variant}")
    body = f"""\
echo "$own $*" >>{MARKER}
case $own in
ip6tables*restore) exec {ip6} "$@" ;;
*restore) exec {restore} "$@" ;;
*) exec {plain} "$@" ;;
esac"""
    given = scenario(f"{{iptables: {program(folder, 'multi', body)}}}")
    told = marks(EngineChoice("embedded/iptables", iptables=variant), given)
    for node in ("node-a", "node-b"):
        for each in (f"iptables-{variant}-restore", f"ip6tables-{variant}-restore"):
            assert f"{each} --wait 5 --noflush --counters" in told[node]


def test_the_users_program_runs_where_the_scenario_names_none(folder: Path) -> None:
    body = f'echo "$own $*" >>{MARKER}\nexec {machine("nft")} "$@"'
    of_user, of_node = (program(folder, f"nft-of-{each}", body) for each in ("user", "node"))
    choice = EngineChoice("embedded/nftables", programs={"nft": of_user})
    told = marks(choice, scenario("", of_node=f"{{nft: {of_node}}}"))
    assert "of-node" in told["node-a"]
    assert "of-user" not in told["node-a"]
    assert "of-user" in told["node-b"]
    assert choice.options == ("--engine", "embedded/nftables", "--program", f"nft={of_user}")


def test_commands_in_a_node_find_its_programs(folder: Path) -> None:
    nft = program(folder, "nft", 'echo "the nft of the scenario: $*"')
    with shared_session(EngineChoice("embedded/iptables")) as session:
        lab = session.open(scenario("", of_node=f"{{nft: {nft}}}"))
        assert lab.execute("node-a", "nft", "list", "tables").stdout == "the nft of the scenario: list tables\n"
        assert "the nft" not in lab.execute("node-b", "nft", "--version").stdout


def test_an_nft_that_aborts_is_the_engines_error_by_its_words(folder: Path) -> None:
    nft = program(folder, "nft", ABORTS.format(machine("nft")))
    with shared_session(EngineChoice("embedded/nftables")) as session, pytest.raises(EngineError) as caught:
        session.open(scenario(f"{{nft: {nft}}}"))
    assert "nft: evaluate.c:1: Assertion failed" in str(caught.value)
    assert "nft was killed by signal 6" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nowhere/nft", "spec.nodes.node-a.programs.nft: /nowhere/nft cannot run in the node: "),
        ("/etc/passwd", "spec.nodes.node-a.programs.nft: /etc/passwd cannot run in the node: "),
    ],
)
def test_a_program_that_cannot_run_is_a_mistake_of_the_scenario(path: str, why: str) -> None:
    with shared_session(EngineChoice("embedded/nftables")) as session, pytest.raises(ScenarioError) as caught:
        session.open(scenario("", of_node=f"{{nft: {path}}}"))
    assert why in str(caught.value)
    assert "every user must be able to run it" in str(caught.value)


def test_an_iptables_of_the_other_variant_is_a_mistake_of_the_scenario() -> None:
    choice = EngineChoice("embedded/iptables", iptables="legacy")
    with shared_session(choice) as session, pytest.raises(ScenarioError) as caught:
        session.open(scenario(f"{{iptables: {machine('xtables-nft-multi')}}}"))
    assert "the lab's is legacy; add --iptables nft" in str(caught.value)


def test_the_multi_call_binary_of_the_machine_is_an_iptables() -> None:
    given = scenario(f"{{iptables: {machine('xtables-nft-multi')}}}")
    with shared_session(EngineChoice("embedded/iptables", iptables="nft")) as session:
        lab = session.open(given)
        assert [lab.probe(each).overall for each in given.probes] == [Judgement.PASS]
        assert "(nf_tables)" in lab.execute("node-a", "ip6tables-save", "--version").stdout
