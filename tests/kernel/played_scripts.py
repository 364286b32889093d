"""Runs a ``repro.sh`` with the system's own python3, where proxylab cannot be imported.

It runs a script as root or as an ordinary user, unchanged or edited, and returns what the script reports.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sandboxed import ORDINARY

from proxylab.report.bundle import Recorded
from proxylab.report.reproduction.outcome import seen
from proxylab.verdict.case import Case

__all__ = ["Played", "in_the_lab", "may_differ", "played", "seen_by"]

Played = subprocess.CompletedProcess[str]


def played(bundle: Path, *, ordinary: bool = False, edits: Sequence[tuple[str, str]] = ()) -> Played:
    """Run the script of a bundle in a directory of its own, where python3 finds only its standard library.

    ``edits`` change the script and its rules.
    """
    with tempfile.TemporaryDirectory(prefix="repro-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        for file in bundle.glob("repro*"):
            (shutil.copytree if file.is_dir() else shutil.copy)(file, Path(folder, file.name))
        for file in (Path(folder, "repro.sh"), *Path(folder).glob("repro.rules/*")):
            text = file.read_text(encoding="utf-8")
            for old, new in edits:
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")
        become = ["setpriv", "--reuid", str(ORDINARY), "--regid", str(ORDINARY), "--clear-groups"]
        return subprocess.run(
            [*(become if ordinary and os.geteuid() == 0 else []), "sh", "repro.sh"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONNOUSERSITE": "1"},
        )


def seen_by(done: Played) -> str:
    """The observations that a script reports."""
    found = [line.removeprefix("seen:").strip() for line in done.stdout.splitlines() if line.startswith("seen:")]
    assert len(found) == 1, done.stdout + done.stderr
    return found[0]


def may_differ(done: Played) -> bool:
    """Whether several pods are valid endpoints, so that the lab's packet may have reached another one."""
    return done.stdout.startswith(("expected: delivered to (", "expected: delivered to .*"))


def in_the_lab(recorded: Recorded) -> set[str]:
    """The lab's observations of each flow, in the format of a script."""
    case = Case(recorded.probe, recorded.resolved, recorded.evidence)
    return {seen(case, flow) for flow in case.flows}
