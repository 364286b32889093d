"""The real kube-proxy's rules on the whole catalogue: each kind that no probe meets has its reason on the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from unmet_rules_page import UNMET

from proxylab.binaries.choose import Sources

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", UNMET)
def test_each_kind_that_no_probe_meets_has_a_reason(mode: str) -> None:
    version = UNMET[mode]["version"]
    if not any(each.version == version for each in Sources.of_user().obtained()):
        pytest.skip(
            f"needs kube-proxy {version}; 'proxylab engines --obtain kube-proxy@{version}' puts it into the cache"
        )
    engine = f"kube-proxy@{version}/{mode}"
    command = [sys.executable, "-m", "proxylab", "run", str(ROOT / "scenarios"), "--engine", engine]
    done = subprocess.run(
        [*command, "--rule-coverage", "-o", "json", "-j", "auto", "--no-bundles"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    kinds = json.loads(done.stdout)["rules"][engine]["kinds"]
    unmet = {each["kind"]: each["unmet"][0] for each in kinds if each["mode"] == mode and not each["met"]}
    known = UNMET[mode]["unmet"]
    assert unmet.keys() - known.keys() == set(), f"no probe meets {unmet}"
    assert known.keys() - unmet.keys() == set(), "a probe meets these now"
    assert len([each for each in kinds if each["mode"] == mode]) == UNMET[mode]["kinds"]
