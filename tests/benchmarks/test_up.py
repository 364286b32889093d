"""``proxylab up`` on the embedded engine: a lab that stands in under a second; ``down`` of a large one."""

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
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "XDG_RUNTIME_DIR": str(tmp_path)}

    def type_(*words: str) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "proxylab", *words], check=True, capture_output=True, env=environment)
        return time.monotonic() - began

    took = []
    for _ in range(5):
        took.append(type_("up", str(SCENARIO)))
        type_("down")
    assert statistics.median(took) <= BOUND, took


@pytest.mark.budget
def test_a_thousand_pods_are_gone_in_five_seconds(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "XDG_RUNTIME_DIR": str(tmp_path)}
    nodes = [f"node-{number}" for number in range(1, 21)]
    scenario = tmp_path / "large.lab.yaml"
    scenario.write_text(
        "apiVersion: proxylab/v1\nkind: Scenario\nmetadata: {name: large}\nspec:\n"
        f"  nodes: {{{', '.join(f'{node}: {{}}' for node in nodes)}}}\n"
        f"  pods: {{echo: {{replicas: 1000, nodes: [{', '.join(nodes)}], ports: [8080]}}}}\n"
    )
    for words in (("up", str(scenario)), ("probe", "echo-1", "echo-1000")):
        subprocess.run([sys.executable, "-m", "proxylab", *words], check=True, capture_output=True, env=environment)
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "proxylab", "down"], check=True, capture_output=True, env=environment)
    took = time.monotonic() - began
    assert took <= 5, took
