"""``proxylab run --jobs``: the same output and exit code as one scenario after the other, and no process left."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupts import interruptible
from scenario_text import scenario_text

from proxylab.cli.scenario_results import number_of_workers
from proxylab.client.open_labs import MOST_JOBS
from proxylab.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
# The scenario that is called "slow" gives the others time to come first; "killed" and "terminated" end their worker.
RUN = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
from fake_lab import FakeSession
from proxylab.cli import main

class Session(FakeSession):
    def open(self, scenario, kernel, source):
        if scenario.name == "slow":
            deadline = time.monotonic() + 10
            while len(list(Path().glob("opened-*"))) < int(os.environ["OTHERS"]) and time.monotonic() < deadline:
                time.sleep(0.01)
        if scenario.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if scenario.name == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        if scenario.name == "waiting":
            Path("waiting").write_text(str(os.getpid()))
            time.sleep(30)
        Path(f"opened-{scenario.name}").touch()
        return super().open(scenario, kernel=kernel, source=source)

main(["run", *sys.argv[1:]], make_session=partial(Session, Path("journal")))
"""
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": os.pathsep.join([str(ROOT / "lab"), str(ROOT / "tests/support")]),
}


def scenarios(folder: Path, **names: str) -> None:
    """A file for each name of a scenario, with one probe of that name."""
    for name, probe in names.items():
        (folder / f"{name}.lab.yaml").write_text(scenario_text(probe, name=name))


def run(folder: Path, *arguments: str, others: int = 0) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", RUN, ".", *arguments],
        cwd=folder,
        env=ENVIRONMENT | {"OTHERS": str(others)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d\d s", "0.00 s", text)


def test_the_output_is_that_of_one_after_the_other_whichever_ends_first(tmp_path: Path) -> None:
    scenarios(tmp_path, a="holds", b="fails", lacking="one", refused="one", z="doubts")
    (tmp_path / "a.lab.yaml").write_text(scenario_text("holds", name="slow"))
    side_by_side = run(tmp_path, "--jobs", "4", "-v", others=3)
    alone = run(tmp_path, "--jobs", "1", "-v")
    assert timeless(side_by_side.stdout) == timeless(alone.stdout)
    assert side_by_side.stderr == alone.stderr
    assert side_by_side.returncode == alone.returncode == ExitCode.FAILED
    assert (tmp_path / "journal").read_text().count("session embedded/iptables") == 5


def test_workers_are_as_many_as_the_processors_bear_and_said() -> None:
    most = number_of_workers(0, 1000)
    assert most == min(2 * len(os.sched_getaffinity(0)), MOST_JOBS)
    assert [number_of_workers(0, each) for each in (0, 1, 2, 3)] == [0, 1, 1, 1]
    assert [number_of_workers(5, each) for each in (0, 1, 4, 9)] == [0, 1, 4, 5]


def test_a_run_says_how_many_scenarios_run_side_by_side_unless_it_was_told(tmp_path: Path) -> None:
    scenarios(tmp_path, **{f"a{each}": "holds" for each in range(4)})
    by_itself, told = run(tmp_path), run(tmp_path, "--jobs", "2")
    assert (
        by_itself.stderr == f"{number_of_workers(0, 4)} scenarios run side by side; --jobs 1 runs one after the other\n"
    )
    assert (told.stderr, told.returncode, by_itself.returncode) == ("", 0, 0)
    assert timeless(told.stdout) == timeless(by_itself.stdout)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("leaving", ExitCode.INTERNAL, "all labs were closed and left behind: descriptor 9"),
        ("buggy", ExitCode.INTERNAL, "RuntimeError: an unforeseen case"),
        ("killed", ExitCode.INTERNAL, "the worker process of the scenario was ended by SIGKILL"),
        ("terminated", ExitCode.INTERNAL, "the worker process of the scenario was ended by SIGTERM; run it again"),
        ("interrupted", 130, ""),
    ],
)
def test_what_ends_a_worker_has_the_exit_code_that_it_has_without_workers(
    tmp_path: Path, name: str, code: int, said: str
) -> None:
    scenarios(tmp_path, **{name: "holds"}, fine="holds", good="holds")
    done = run(tmp_path, "--jobs", "2")
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    if name in ("killed", "terminated"):
        assert "2 passed, 1 error" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, -15)])
def test_the_end_of_the_client_is_the_end_of_its_workers(tmp_path: Path, number: int, code: int) -> None:
    scenarios(tmp_path, waiting="holds", fine="holds")
    argv = [sys.executable, "-c", RUN, ".", "-j2"]
    with interruptible():
        client = subprocess.Popen(argv, cwd=tmp_path, env=ENVIRONMENT | {"OTHERS": "0"})
    said = tmp_path / "waiting"
    until(lambda: said.exists() and bool(said.read_text()), "a worker to wait")
    worker = int(said.read_text())
    client.send_signal(number)
    assert client.wait(20) == code
    until(lambda: not Path(f"/proc/{worker}").exists(), "the worker to end")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("number", ["0", "9", "many"])
def test_any_other_number_is_refused(tmp_path: Path, number: str) -> None:
    scenarios(tmp_path, fine="holds")
    done = run(tmp_path, "--jobs", number)
    assert done.returncode == ExitCode.SCENARIO
    assert "give a number from 1 to 8, or auto" in done.stderr
