"""Every probe of a run that does not pass leaves a bundle, and all of them are judged again to the same verdicts."""

import json
import os
import subprocess
import sys
from pathlib import Path

from sandboxed import ROOT

SCENARIOS = (
    "scenarios/clusterip/from-a-pod.lab.yaml",
    "scenarios/clusterip/no-endpoints.lab.yaml",
    "scenarios/nodeport/traffic-policy-local.lab.yaml",
)
# Without DNAT every delivery fails, by TCP and UDP, by sockets and crafted packets.
MUTATION = """
import lab.engines.embedded.iptables.bodies as module
module.translation = lambda scope, endpoint: ()
"""


def proxylab(*arguments: str, mutation: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*([str(mutation)] if mutation else []), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
    )


def test_all_bundles_of_a_run_are_judged_again_to_the_same_verdicts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MUTATION, encoding="utf-8")
    kept = tmp_path / "kept"
    files = [str(ROOT / scenario) for scenario in SCENARIOS]
    ran = proxylab("run", *files, "--bundle-dir", str(kept), "-o", "json", mutation=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    probes = [probe for scenario in json.loads(ran.stdout)["scenarios"] for probe in scenario["probes"]]
    failed = sorted(probe["name"] for probe in probes if probe["judgement"] != "pass")
    assert 5 < len(failed) < len(probes)

    bundles = sorted(kept.rglob("case.json"))
    assert len(bundles) == len(failed)
    for bundle in bundles:
        assert "-j KUBE-SERVICES" in (bundle.parent / "rules/node-a.txt").read_text()
        assert "goes to KUBE-SERVICES" in (bundle.parent / "trace.txt").read_text()
        assert (bundle.parent / "capture.pcapng").stat().st_size > 100

    # Without the mutation, and without a lab: from what was recorded.
    again = proxylab("judge", str(kept), "-v")
    assert again.returncode == ran.returncode, again.stdout + again.stderr
    assert again.stderr == ""  # no verdict is another one now
    for name in failed:
        assert name in again.stdout
