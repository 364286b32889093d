"""The real kube-proxy's rules on the whole catalogue: each kind has a scenario that meets it, or a reason on the page.

``LAB_DOCS=write`` writes the record of the kinds anew; ``LAB_DOCS=write ./dev lint`` then writes the page.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from unmet_rules_page import RECORD, UNMET, kinds_of

from proxylab.binaries.choose import Sources

ROOT = Path(__file__).parents[2]


# The whole catalogue on the real proxy takes minutes of all processors. That rules which no probe met are found on it,
# tests/engines/test_rule_coverage_of_kube_proxy.py shows of a few scenarios.
@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", UNMET)
def test_each_kind_that_no_probe_meets_has_a_reason(mode: str) -> None:
    version, known, reasons = (UNMET[mode][each] for each in ("version", "kinds", "reasons"))
    if not any(each.version == version for each in Sources.of_user().obtained()):
        pytest.skip(f"needs kube-proxy {version}; obtain it by 'proxylab engines --obtain {version}'")
    command = [sys.executable, "-m", "proxylab", "run", "scenarios", "--engine", f"kube-proxy@{version}/{mode}"]
    done = subprocess.run(
        [*command, "--rule-coverage", "-o", "json", "-j", "auto", "--no-bundles"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    kinds = kinds_of([json.loads(done.stdout)], mode)
    if os.environ.get("LAB_DOCS") == "write":
        head = "".join(line for line in RECORD.read_text().splitlines(keepends=True) if line.startswith("#"))
        record = {**UNMET, mode: {**UNMET[mode], "kinds": kinds}}
        RECORD.write_text(head + yaml.safe_dump(record, sort_keys=False, width=10_000))
    assert {kind for kind, scenario in kinds.items() if not scenario} == reasons.keys()
    assert kinds.keys() == known.keys()
