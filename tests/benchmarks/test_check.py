"""``proxylab check`` of one file, beside what its libraries alone take.

The bound is 500 ms of processor time, on a quiet machine. One that runs tests in parallel shares caches and cores among
them, and takes longer for the same work: so on every machine it is held to the measure of its libraries, too. It takes
4 of it.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "clusterip" / "from-a-pod.lab.yaml"
LIBRARIES = "import click, msgspec, yaml"
BOUND = 0.500
TIMES_THE_LIBRARIES = 6


def cpu_seconds(argv: Sequence[str], cache: Path) -> float:
    """Of one run; what is imported is compiled to ``cache`` by the first."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {"PYTHONPATH": str(ROOT / "lab"), "PYTHONPYCACHEPREFIX": str(cache)}
    subprocess.run([sys.executable, *argv], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pairs(tmp_path: Path) -> list[tuple[float, float]]:
    """Of runs by turns, in seconds: the libraries, and ``check`` right after them. The first pair fills the cache."""
    runs = [
        (cpu_seconds(["-c", LIBRARIES], tmp_path), cpu_seconds(["-m", "proxylab", "check", str(SCENARIO)], tmp_path))
        for _ in range(10)
    ]
    return runs[1:]


def test_check_of_one_file_takes_little_beside_its_libraries(tmp_path: Path) -> None:
    # The median of the pairs: what else the machine does slows both of a pair, and a lucky run of one is no measure.
    assert median(ours / floor for floor, ours in pairs(tmp_path)) <= TIMES_THE_LIBRARIES


@pytest.mark.budget
def test_check_of_one_file_takes_half_a_second(tmp_path: Path) -> None:
    assert min(ours for _, ours in pairs(tmp_path)) <= BOUND
