"""What Debian's user-mode Linux cannot do is said before a lab runs there, or by the probe that needs it alone."""

import json
import os
import subprocess
import sys

import pytest
from guests import DEBIANS, kernel
from sandboxed import ROOT

from proxylab.guest.kernels import Kernel

__all__ = ["kernel"]

pytestmark = [DEBIANS, pytest.mark.thorough, pytest.mark.timeout(600)]
SCENARIO = "scenarios/nodeport/traffic-policy-local.lab.yaml"


def run(binary: str, engine: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxylab", "run", SCENARIO, "--engine", engine, "--kernel", binary, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize("kernel", [False], indirect=True)
def test_a_mode_that_the_kernel_lacks_is_a_skip_with_the_cure(kernel: Kernel) -> None:
    done = run(kernel.binary, "embedded/nftables")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "needs nftables (" in done.stdout
    assert "`proxylab kernels --obtain`" in " ".join(done.stdout.split())
    assert "modprobe" not in done.stdout
    assert len(done.stdout.splitlines()) < 15


@pytest.mark.parametrize("kernel", [False], indirect=True)
def test_a_probe_from_a_node_skips_itself_where_no_tap_shows_its_stack(kernel: Kernel) -> None:
    done = run(kernel.binary, "embedded/ipvs", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (scenario,) = json.loads(done.stdout)["scenarios"]
    judged = {each["name"]: each["judgement"] for each in scenario["probes"]}
    skipped = {name for name, word in judged.items() if word == "skip"}
    assert skipped == {name for name in judged if "the node itself" in name}
    assert list(judged.values()).count("pass") == 6
