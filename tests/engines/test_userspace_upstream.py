"""kube-proxy before 1.26 in mode userspace passes what the embedded engine passes, and writes the same rules.

It raises its limit of open files, and goes on without only in a user namespace. So an ordinary user runs it.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxed import checkout_for, python_of

from proxylab.binaries.choose import Sources, with_mode

pytestmark = pytest.mark.thorough


@pytest.fixture
def binary() -> Iterator[Path]:
    """The newest cached kube-proxy that has the mode, where every user may run it."""
    known = with_mode(Sources.of_user().obtained(), "userspace")
    if not known:
        pytest.skip("needs 'proxylab engines --obtain v1.23.17', which Go builds in ten minutes")
    folder = Path(tempfile.mkdtemp(prefix="userspace-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield shutil.copy(known[-1].path, folder / "kube-proxy")
    finally:
        shutil.rmtree(folder)


def proxylab(verb: str, *options: str, scenario: str, binary: Path) -> subprocess.CompletedProcess[str]:
    with checkout_for(ordinary=True) as (root, become):
        path = root / "scenarios" / "userspace" / scenario
        return subprocess.run(
            [*become, python_of(root), "-m", "proxylab", verb, *options, "--kube-proxy", str(binary), str(path)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(root / "lab"), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def test_the_scenarios_of_the_mode_hold_on_it(binary: Path) -> None:
    done = proxylab("run", "--no-bundles", "-o", "json", "--engine", "kube-proxy/userspace", scenario="", binary=binary)
    assert done.stdout, done.stderr
    cases = json.loads(done.stdout)["scenarios"]
    assert [case["fault"] for case in cases] == [None] * len(cases)
    judgements = {each["name"]: each["judgement"] for case in cases for each in case["probes"]}
    assert judgements == dict.fromkeys(judgements, "pass")


def test_its_rules_are_those_of_the_embedded_engine(binary: Path) -> None:
    engines = "embedded/userspace,kube-proxy/userspace"
    done = proxylab("diff", "--rules", "--engines", engines, scenario="every-pod-sees-the-node.lab.yaml", binary=binary)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference" in done.stdout
