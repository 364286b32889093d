"""Drawn scenarios have no mistakes and get a plan; mutated files have mistakes and nothing worse."""

from datetime import timedelta
from pathlib import Path

import pytest
from broken_scenarios import BASE, broken_scenarios
from drawn_scenarios import scenario_texts
from fuzz import fuzz, main
from hypothesis import HealthCheck, given, settings
from thoroughness import examples

from proxylab.plan.assembly import lay_out
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "scenario"
FILES = [*sorted((ROOT / "scenarios").rglob("*.lab.yaml")), *sorted(GOLDEN.glob("*.lab.yaml"))]
SOON = timedelta(seconds=5)


@settings(max_examples=examples(25), deadline=SOON, suppress_health_check=[HealthCheck.too_slow])
@given(scenario_texts())
def test_drawn_scenarios_get_a_plan(text: str) -> None:
    scenario = parse_scenario(text, "f")
    for case in cases(scenario, "iptables"):
        assert lay_out(case).plan.namespaces


def test_mutated_files_have_mistakes_and_nothing_worse() -> None:
    seeds = [BASE, *(case.text for case in broken_scenarios()), *(file.read_text() for file in FILES)]
    assert list(fuzz(seeds, files=examples(120), seed=20)) == []


def test_the_fuzz_command_counts_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FILES[0]), "--files", "3", "--seed", "1"]) == 0
    assert capsys.readouterr().out == "3 files read, 0 findings\n"

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("fuzz.parse_scenario", broken)
    assert main([str(FILES[0]), "--files", "2"]) == 1
    assert "file 1 of seed 0: ZeroDivisionError" in capsys.readouterr().out
