"""A single chosen probe of a later step meets the state that the probes before it would have left."""

import json
import os
import subprocess
import sys

from sandboxed import ROOT

SCENARIO = "scenarios/affinity/other-endpoints-change.lab.yaml"
CHOSEN = (
    "the first endpoint is back and the last one terminates: "
    "ClientIP affinity survives the return of an endpoint before the client's own"
)


def test_a_chosen_probe_meets_the_affinity_that_an_earlier_probe_left() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", "--no-bundles", "-o", "json", SCENARIO, "--probe", CHOSEN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    probes = [probe for case in json.loads(done.stdout)["scenarios"] for probe in case["probes"]]
    assert [probe["judgement"] for probe in probes] == ["pass", "pass"], done.stdout
