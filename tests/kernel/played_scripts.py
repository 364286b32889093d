"""A ``repro.sh``, run where nothing of proxylab can be imported, with the system's own python3.

Owns: running one as root or as an ordinary user, as it is or edited, and what it says it has seen.
Must not: know what that ought to be.
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
from proxylab.verdict.case import open_case

__all__ = ["Played", "in_the_lab", "may_differ", "played", "seen_by"]

Played = subprocess.CompletedProcess[str]


def played(bundle: Path, *, ordinary: bool = False, edits: Sequence[tuple[str, str]] = ()) -> Played:
    """The script of a bundle, run in a directory of its own where python3 finds nothing but its standard library.

    ``edits`` are made in the script and in its rules; one that changes nothing changes nothing of what is seen.
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
    """What a script says that it has seen."""
    found = [line.removeprefix("seen:").strip() for line in done.stdout.splitlines() if line.startswith("seen:")]
    assert len(found) == 1, done.stdout + done.stderr
    return found[0]


def may_differ(done: Played) -> bool:
    """Whether several pods are as expected, so that chance may have led the lab's packet to another one."""
    return done.stdout.startswith(("expected: delivered to (", "expected: delivered to .*"))


def in_the_lab(recorded: Recorded) -> set[str]:
    """What the lab has seen of each flow, in the words of a script."""
    case = open_case(recorded.probe, recorded.resolved, recorded.evidence)
    return {seen(case, flow) for flow in case.flows}
