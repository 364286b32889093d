"""Scenarios pass with either variant of iptables, and with each version that an engine emulates."""

import os
import subprocess
import sys

import pytest
from sandboxed import ROOT

from proxylab.engines.engine_names import ENGINES, IPTABLES_VARIANTS
from proxylab.errors import ExitCode

FILES = (
    "scenarios/clusterip/from-a-pod.lab.yaml",
    "scenarios/clusterip/internal-traffic-policy-local.lab.yaml",
    "scenarios/nodeport/traffic-policy-local.lab.yaml",
)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxylab", "run", *options, *(str(ROOT / file) for file in FILES)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )


def held(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == ExitCode.CAPABILITY:
        pytest.skip(done.stderr.strip())
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr


@pytest.mark.parametrize("variant", IPTABLES_VARIANTS)
def test_scenarios_hold_with_each_variant(variant: str) -> None:
    held(run("--iptables", variant))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name.startswith("embedded@")])
def test_scenarios_hold_on_engines_of_other_versions(engine: str) -> None:
    held(run("--engine", engine))
