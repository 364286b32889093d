"""Parse, print, parse gives the same scenario; drawn scenarios have no mistakes and get a plan."""

from datetime import timedelta
from pathlib import Path

import pytest
from broken_scenarios import BASE, broken_scenarios
from drawn_scenarios import scenario_texts
from fuzz import fuzz, main
from hypothesis import HealthCheck, given, settings
from msgspec import Struct
from msgspec.structs import asdict, replace
from thoroughness import examples

from proxylab.plan.assembly import lay_out
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Position, Scenario
from proxylab.scenario.printing import scenario_text

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "scenario"
FILES = [*sorted((ROOT / "scenarios").rglob("*.lab.yaml")), *sorted(GOLDEN.glob("*.lab.yaml"))]
SOON = timedelta(seconds=5)


def placeless(value: object) -> object:
    """A value without positions, which printing does not keep."""
    if isinstance(value, Position):
        return None
    if isinstance(value, Struct):
        return type(value).__name__, {
            name: placeless(each) for name, each in asdict(value).items() if name != "positions"
        }
    if isinstance(value, dict):
        return {key: placeless(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(placeless, value))
    return value


def assert_round(scenario: Scenario) -> None:
    again = parse_scenario(scenario_text(scenario), "f", to_run=False)
    kept = replace(scenario, file="f", notes=())
    assert placeless(replace(again, notes=())) == placeless(kept)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_of_the_tree(file: Path) -> None:
    assert_round(parse_scenario(file.read_text(), "f", to_run=False))


@settings(max_examples=examples(25), deadline=SOON, suppress_health_check=[HealthCheck.too_slow])
@given(scenario_texts())
def test_drawn_scenarios(text: str) -> None:
    scenario = parse_scenario(text, "f", to_run=False)
    assert_round(scenario)
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
