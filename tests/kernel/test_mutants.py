"""The scenarios can fail: each rule that they are about is taken out of the renderer, and they turn red.

The mutation is made by a ``sitecustomize`` module that every interpreter of the run imports at its start.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandboxed import ROOT

BODIES = "lab.engines.embedded.iptables.bodies"
FIXED = "lab.engines.embedded.iptables.fixed"
FRONTS = "lab.engines.embedded.iptables.fronts"


@dataclass(frozen=True)
class Mutant:
    """What is replaced by what, which scenario must notice, and in what words."""

    name: str
    module: str
    function: str
    becomes: str
    scenario: str
    words: tuple[str, ...]


MUTANTS = [
    Mutant(
        "no DNAT",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        "scenarios/clusterip/from-a-pod.lab.yaml",
        ("outcome", "delivered"),
    ),
    Mutant(
        "no masquerade",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        "scenarios/clusterip/from-a-pod.lab.yaml",
        ("source",),
    ),
    Mutant(
        "no statistic match",
        BODIES,
        "share",
        "lambda index, count: ''",
        "scenarios/clusterip/from-a-pod.lab.yaml",
        ("spread",),
    ),
    Mutant(
        "no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        "scenarios/nodeport/traffic-policy-cluster.lab.yaml",
        ("outcome", "delivered", "refused"),
    ),
    Mutant(
        "no drop without a local endpoint",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        "scenarios/nodeport/traffic-policy-local.lab.yaml",
        ("outcome", "dropped", "refused"),
    ),
    Mutant(
        "no short circuit",
        BODIES,
        "short_circuit",
        "lambda scope: ()",
        "scenarios/nodeport/traffic-policy-local.lab.yaml",
        ("outcome", "delivered", "dropped"),
    ),
    Mutant(
        "no source ranges",
        BODIES,
        "source_ranges",
        "lambda scope: iter(())",
        "scenarios/loadbalancer/source-ranges.lab.yaml",
        ("outcome", "delivered"),
    ),
]


def run(scenario: str, mutation: Path | None) -> subprocess.CompletedProcess[str]:
    path = [str(mutation)] if mutation else []
    return subprocess.run(
        [sys.executable, "-m", "lab", "run", str(ROOT / scenario)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), "NO_COLOR": "1"},
    )


@pytest.mark.parametrize("scenario", sorted({mutant.scenario for mutant in MUTANTS}))
def test_the_scenario_holds_as_it_stands(scenario: str) -> None:
    done = run(scenario, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_scenario_turns_red_without_its_rule(mutant: Mutant, tmp_path: Path) -> None:
    patch = f"import {mutant.module} as module\nmodule.{mutant.function}\nmodule.{mutant.function} = {mutant.becomes}\n"
    (tmp_path / "sitecustomize.py").write_text(patch, encoding="utf-8")
    done = run(mutant.scenario, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for word in mutant.words:
        assert word in done.stdout
