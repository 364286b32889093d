"""A ``repro.sh``, run where nothing of proxylab can be imported, with the system's own python3.

Owns: running one as root or as an ordinary user, as it is or edited.
Must not: know what it says.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sandboxed import ORDINARY

__all__ = ["Played", "edited", "played"]

Played = subprocess.CompletedProcess[str]


def played(script: Path, *, ordinary: bool) -> Played:
    """The script, run in an empty directory where python3 finds nothing but its standard library."""
    with tempfile.TemporaryDirectory(prefix="repro-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        shutil.copy(script, Path(folder, "repro.sh"))
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


def edited(script: Path, edits: Sequence[tuple[str, str]]) -> Path:
    """A copy of a script with other text here and there."""
    text = script.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (copy := script.parent / "edited.sh").write_text(text, encoding="utf-8")
    return copy
