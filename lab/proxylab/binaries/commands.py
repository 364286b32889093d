"""Runs the tools that obtain binaries and kernels: go, apt, dpkg-deb, make."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proxylab.errors import CapabilityError

__all__ = ["output_of"]

_SECONDS: Final = 2 * 3600.0
_TAIL: Final = 20


def output_of(
    argv: Sequence[str],
    folder: Path | None = None,
    *,
    what: str = "",
    seconds: float = _SECONDS,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints. ``what`` is its name in an error, by default the whole command. It ends after ``seconds``.

    Raises:
        CapabilityError: it failed; with the last lines of its output.
        FileNotFoundError: there is no such command.
        subprocess.TimeoutExpired: it was ended.
    """
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode != 0:
        printed = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL:])
        raise CapabilityError(
            f"'{what or ' '.join(argv)}' without an error; it prints:\n  {printed}\n", "fix that error"
        )
    return done.stdout
