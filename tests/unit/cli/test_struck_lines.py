"""Ctrl-C at any moment: before each line that a client executes, and while Python ends. No run has a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interrupts import interruptible
from scenario_text import scenario_text
from struck_lines import Ended

from proxylab.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("LAB_")},
    "PYTHONPATH": os.pathsep.join([str(ROOT / "lab"), str(ROOT / "tests/support")]),
    "PYTHONDONTWRITEBYTECODE": "1",
}
PROGRAM = ROOT / "tests/support/struck_lines.py"

ENTRY = (ROOT / "lab/proxylab/cli/__init__.py").read_text().splitlines()
PYTHONS = f"cli/__init__.py:{1 + next(number for number, line in enumerate(ENTRY) if line.startswith('    try:'))}"
"""The first line of ``main``, before which no code of proxylab can answer: Python's own handler prints a traceback."""


def runs_of(folder: Path, *words: str, every: int = 1) -> list[Ended]:
    """A run of the command for each line that it executes in the packages of verbs and clients."""
    with interruptible():
        done = subprocess.run(
            [sys.executable, PROGRAM, "SIGINT", str(every), "cli,client,features", "--", *words],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
    return [Ended(*each) for each in json.loads(done.stdout)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check", "good.lab.yaml"], 0),
        pytest.param(["check", "bad.lab.yaml"], 2, marks=pytest.mark.thorough),
        pytest.param(["graph", "good.lab.yaml"], 0, marks=pytest.mark.thorough),
        pytest.param(["merge", "good.lab.yaml"], 2, marks=pytest.mark.thorough),
        pytest.param(["init", "made.lab.yaml"], 2, marks=pytest.mark.thorough),  # the first run has made the file
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_an_interrupt_at_any_line_ends_a_client_without_a_traceback(
    words: list[str], code: int, tmp_path: Path
) -> None:
    (tmp_path / "good.lab.yaml").write_text(scenario_text("echo"))
    (tmp_path / "bad.lab.yaml").write_text("spec: {}\n")
    first, *others = runs_of(tmp_path, *words)
    assert first.status == code
    assert "Traceback" not in first.output
    later = [each for each in others if each.line != PYTHONS]
    assert len(others) - len(later) == 1
    assert any(each.line.startswith("cli/__init__.py") for each in later)
    assert len(later) > 50
    for each in later:
        assert each.status in (130, -signal.SIGINT, code), each
        assert "Traceback" not in each.output, each
        assert "Exception ignored" not in each.output, each
        assert "has a bug" not in each.output, each


def test_an_interrupt_while_python_ends_has_no_traceback(tmp_path: Path) -> None:
    program = (
        "import atexit, os, signal\n"
        "from proxylab.cli import main\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    with interruptible():
        done = subprocess.run(
            [sys.executable, "-c", program, "schema"], env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


WORKERS = """
import json, signal, sys
from functools import partial
from pathlib import Path
from fake_lab import FakeSession
from struck_lines import struck

made = partial(FakeSession, Path("journal"))
parts = ("client/workers", "client/tasks", "client/warning_lines")
found = [*struck(["run", ".", "--jobs", "2"], parts, signal.Signals[sys.argv[1]], make_session=made, of_workers=True)]
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "blow", ["SIGTERM", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("SIGHUP", "SIGINT"))]
)
def test_a_signal_at_any_line_of_a_worker_is_told_in_a_line(blow: str, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.lab.yaml").write_text(scenario_text(name, name=name))
    with interruptible():
        done = subprocess.run(
            [sys.executable, "-c", WORKERS, blow],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
    first, *others = (Ended(*each) for each in json.loads(done.stdout))
    assert first.status == 0, first
    assert len(others) > 10
    for each in others:
        assert "Traceback" not in each.output, each
        assert "has a bug" not in each.output, each
        assert each.status == (0 if "was ended by" not in each.output else ExitCode.INTERNAL), each
    if blow != "SIGINT":  # which workers leave to their client
        assert any(f"was ended by {blow}" in each.output for each in others)
