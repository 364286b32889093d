"""Runs the tools that obtain a kernel: apt, dpkg-deb, make."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxylab.errors import CapabilityError

__all__ = ["output_of"]

_SECONDS: Final = 2 * 3600.0
_TAIL: Final = 20


def output_of(argv: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints. Raises ``CapabilityError`` with the last lines if it fails."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        printed = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL:])
        raise CapabilityError(f"'{' '.join(argv)}' without an error; it prints:\n  {printed}\n", "fix that error")
    return done.stdout
