"""``pytest --collect-only`` of every scenario of this project: two seconds, and nothing that only a run needs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOUND = 2.0
FOR_A_RUN = ("docker", "proxylab.kernel", "proxylab.traffic", "pyroute2", "scapy")

# Loaded as a plugin: notes what is started, and in the end what is loaded.
WITNESS = """
import json, os, sys

started = []
ways = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
sys.addaudithook(lambda event, arguments: event in ways and started.append(f"{event} {arguments[0]}"))

def pytest_unconfigure():
    with open(os.environ["WITNESS"], "w") as file:
        json.dump({"started": started, "loaded": sorted(sys.modules)}, file)
"""


def collect(*options: str, **environment: str) -> list[str]:
    """The lines of a collection of all scenarios, without plugins that look at the machine for their reports."""
    known = () if installed() else ("-p", "proxylab.pytest_plugin")
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:html", "-p", "no:metadata"]
    done = subprocess.run(
        [*argv, *known, *options, "scenarios"],
        cwd=ROOT,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def installed() -> bool:
    """Whether pytest finds the plugin by itself."""
    from importlib.metadata import entry_points

    return any(each.value == "proxylab.pytest_plugin" for each in entry_points(group="pytest11"))


def test_collection_starts_nothing_and_loads_nothing_that_a_run_needs(tmp_path: Path) -> None:
    (tmp_path / "witness.py").write_text(WITNESS)
    seen = tmp_path / "seen.json"
    # The project's own conftest asks git what changed; a user's has no part in it.
    lines = collect("-p", "witness", "--noconftest", PYTHONPATH=f"{tmp_path}:{ROOT}/lab", WITNESS=str(seen))
    witnessed = json.loads(seen.read_text())
    assert len(lines) > 400
    assert witnessed["started"] == []
    assert [name for name in FOR_A_RUN if name in witnessed["loaded"]] == []


@pytest.mark.budget
def test_collection_of_all_scenarios(tmp_path: Path) -> None:
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    collect(**cache)  # compiles

    def once() -> float:
        began = time.perf_counter()
        collect(**cache)
        return time.perf_counter() - began

    assert min(once() for _ in range(3)) <= BOUND
