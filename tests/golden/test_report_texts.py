"""The words of a report, as files to be read and reviewed: the product's face.

Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

from pathlib import Path

import pytest
from made_steps import all_well, entry_remains, torn_connection, unproven_loss
from probed import CASES, RUN
from recorded import SVC

from proxylab.report.document import to_json
from proxylab.report.failure_text import explain
from proxylab.report.run_text import run_lines
from proxylab.verdict.model import ScenarioResult

FILES = Path(__file__).parent / "report"


def compare(name: str, text: str, update: bool) -> None:
    file = FILES / name
    if update:
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_explanations(name: str, update_golden: bool) -> None:
    lines = explain(CASES[name]())
    assert max(map(len, lines)) <= 80
    compare(f"{name}.txt", "\n".join(lines) + "\n", update_golden)


@pytest.mark.parametrize(("name", "verbosity"), [("run-quiet.txt", -1), ("run.txt", 0), ("run-verbose.txt", 1)])
def test_runs(name: str, verbosity: int, update_golden: bool) -> None:
    compare(name, "\n".join(run_lines(RUN, verbosity=verbosity)) + "\n", update_golden)


def test_json(update_golden: bool) -> None:
    compare("run.json", to_json(RUN) + "\n", update_golden)


STEPS = {
    "step-entry-remains": entry_remains,
    "step-torn-connection": torn_connection,
    "step-unproven-loss": unproven_loss,
    "step-all-well": all_well,
}


@pytest.mark.parametrize("name", STEPS)
def test_timelines(name: str, update_golden: bool) -> None:
    lines = explain(STEPS[name]())
    assert max(map(len, lines)) <= 80
    compare(f"{name}.txt", "\n".join(lines) + "\n", update_golden)


def test_a_run_with_steps(update_golden: bool) -> None:
    steps = (all_well(), entry_remains())
    run = [ScenarioResult(file="roll.lab.yaml", name="roll", engine="embedded/iptables", steps=steps, seconds=0.5)]
    compare("run-of-steps.txt", "\n".join(run_lines(run, verbosity=1)) + "\n", update_golden)
    compare("run-of-steps.json", to_json(run) + "\n", update_golden)


def test_every_file_has_a_case() -> None:
    expected = {f"{name}.txt" for name in (*CASES, *STEPS)}
    expected |= {"run-quiet.txt", "run.txt", "run-verbose.txt", "run.json", "run-of-steps.txt", "run-of-steps.json"}
    assert {file.name for file in FILES.iterdir()} == expected
    assert SVC[:15] in (FILES / "no-translation.txt").read_text()
