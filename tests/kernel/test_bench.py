"""``proxylab bench`` in labs of few Services: each figure is there, and what is slow shows as slow."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from guests import OWN
from node_programs import folder_for_all, machine, program

from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import EngineError, ExitCode
from proxylab.features.bench.figures import BenchReport, Figure, read_report
from proxylab.features.bench.runs import measure

SLOW = 0.3
AFTER_CHANGES = (Figure.COLD_START, Figure.ONE_CHANGE, Figure.CHURN, Figure.LATENCY_P50, Figure.LATENCY_P99)


def measured(choice: EngineChoice, services: int = 4) -> dict[Figure, float]:
    with Session(choice) as session:
        return dict(measure(session, services, endpoints=2, changes=3).figures)


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables", "embedded/userspace"])
def test_an_engine_has_every_figure(engine: str) -> None:
    found = measured(EngineChoice(engine))
    assert {*found} == {*Figure}
    times = [each for each in Figure if each.facts.unit == "seconds"]
    assert all(0 <= found[each] < 30 for each in times)  # mode userspace chooses after a dial, so latencies may be 0
    assert found[Figure.LATENCY_P50] <= found[Figure.LATENCY_P99]
    assert found[Figure.RULES] > 4


@OWN
def test_mode_ipvs_has_every_figure_in_a_guest() -> None:
    assert {*measured(EngineChoice("embedded/ipvs", kernel="uml"))} == {*Figure}


def test_more_services_have_more_rules() -> None:
    few, many = (measured(EngineChoice(), services)[Figure.RULES] for services in (2, 12))
    assert many - few > 10


def test_a_slow_tool_shows_in_every_change() -> None:
    """The nft of the node takes longer: so do the start, each change and its latency, but no packet does."""
    with folder_for_all() as folder:
        slow = program(folder, "nft", f'case "$*" in *-f*) sleep {SLOW};; esac\nexec {machine("nft")} "$@"')
        found = measured(EngineChoice("embedded/nftables", programs={"nft": slow}))
    assert min(found[each] for each in AFTER_CHANGES) >= SLOW
    assert found[Figure.FIRST_PACKET] < SLOW / 2


def test_rules_that_never_come_are_the_engines_fault() -> None:
    with folder_for_all() as folder:
        body = f'case "$*" in *-f*) cat >/dev/null; exit 0;; esac\nexec {machine("nft")} "$@"'
        choice = EngineChoice("embedded/nftables", programs={"nft": program(folder, "nft", body)}, sync_seconds=1.5)
        with pytest.raises(EngineError, match=r"no packet met its new rules within 1\.5 s"):
            measured(choice)


def report(file: Path) -> BenchReport:
    return read_report(file.read_text())


def test_the_verb_stores_a_run_and_compares_the_next_one_with_it(cli: CommandLine, tmp_path: Path) -> None:
    stored, now, page, drawing = (tmp_path / name for name in ("stored.json", "now.json", "bench.html", "bench.svg"))
    words = ("bench", "--services", "2,4", "--rounds", "2", "--changes", "2")
    first = cli.type(*words, "--report", str(stored))
    assert first.status == ExitCode.OK, first.errors
    assert "cold start" in first.output
    assert [len(each) for size in report(stored).engines[0].sizes for each in size.values.values()] == [2] * 26
    files = (word for file in (now, page, drawing) for word in ("--report", str(file)))
    second = cli.type(*words, "--against", str(stored), *files, "-o", "json")
    assert second.status in (ExitCode.OK, ExitCode.FAILED), second.errors
    assert json.loads(second.output) == json.loads(now.read_text())
    assert "compared with the stored run: 26 figures" in second.errors
    assert "<svg" in page.read_text()
    assert drawing.read_text().startswith("<svg")


def test_what_cannot_run_is_told_and_the_others_are_measured(cli: CommandLine) -> None:
    with folder_for_all() as folder:
        broken = program(folder, "nft", "echo no rules today >&2; exit 1")
        engines = ("--engine", "embedded/nftables", "--engine", "embedded/iptables", "--program", f"nft={broken}")
        done = cli.type("bench", "--services", "2", "--rounds", "1", "--changes", "1", *engines)
    assert done.status == ExitCode.FAILED
    assert "not measured:" in done.output
    assert "embedded/nftables at 2 Services" in done.output
    assert "embedded/iptables" in done.output
