"""``proxylab up`` on the embedded engine: a lab that stands in under a second."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "clusterip" / "from-a-pod.lab.yaml"
BOUND = 1.0


@pytest.mark.budget
def test_a_lab_stands_in_under_a_second(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}

    def type_(*words: str) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "lab", *words], check=True, capture_output=True, env=environment)
        return time.monotonic() - began

    took = []
    for _ in range(5):
        took.append(type_("up", str(SCENARIO)))
        type_("down")
    assert statistics.median(took) <= BOUND, took
