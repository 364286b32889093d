"""``proxylab diff`` on a kernel: the effect of a change on two engines that forget flows differently."""

import subprocess
import sys

import pytest
from sandboxed import ROOT

from proxylab.errors import ExitCode

SCENARIO = "scenarios/steps/scaled-to-zero-under-streams.lab.yaml"


def compared(*engines: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "proxylab", "diff", SCENARIO, "--rules", "--engines", ",".join(engines)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.timeout(110)
def test_a_step_that_differs_between_two_engines_is_shown_packet_by_packet() -> None:
    done = compared("embedded/iptables", "embedded@v1.34/iptables")
    assert done.returncode == ExitCode.FAILED, done.stderr
    said = done.stdout
    assert [line.partition(": ")[2] for line in said.splitlines() if line.startswith(SCENARIO)] == [
        "the only pod is deleted, and streams are rejected",
        "an unready pod is added, and streams are still rejected",
        "the pod becomes ready, and streams reach it without loss",
    ]
    first, second = said.split("  what happened on ")[1:3]
    assert first.startswith("embedded/iptables:")
    assert "an ICMP error answers (ECONNREFUSED)" in " ".join(first.split())
    assert second.startswith("embedded@v1.34/iptables:")
    assert "lost" in second
    assert "rules on" not in said
    assert done.stderr == f"{SCENARIO}: 0 probes and 4 steps\n"
