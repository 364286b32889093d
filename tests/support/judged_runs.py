"""Runs of one file on the kube-proxy under test, by the command line, as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from documents import ROOT

from proxylab.binaries.binary import Binary


def judged_cases(file: Path, engine: str, kube_proxy: Binary) -> list[dict[str, Any]]:
    """The cases of a scenario file, each of which ran without a fault of the lab."""
    command = ["run", "--no-bundles", "-o", "json", "--engine", engine, "--kube-proxy", str(kube_proxy.path), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.stdout, done.stderr
    cases: list[dict[str, Any]] = json.loads(done.stdout)["scenarios"]
    assert [case["fault"] for case in cases] == [None] * len(cases)
    return cases
