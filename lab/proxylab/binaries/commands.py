"""Runs the tools that obtain binaries and kernels: go, apt, dpkg-deb, make."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proxylab.errors import CapabilityError

_SECONDS: Final = 2 * 3600.0
_TAIL: Final = 20


class FailedCommandError(CapabilityError):
    """A command failed. ``printed`` has the last lines of its output."""

    def __init__(self, command: str, printed: str) -> None:
        super().__init__(f"{command!r} without an error; it prints:\n{printed}\n", "fix that error")
        self.printed = printed


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
        FailedCommandError: it failed.
        FileNotFoundError: there is no such command.
        subprocess.TimeoutExpired: it was ended.
    """
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-_TAIL:]
        raise FailedCommandError(what or " ".join(argv), "\n".join(f"  {line}" for line in last))
    return done.stdout
