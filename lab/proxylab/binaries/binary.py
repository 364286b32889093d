"""A kube-proxy that lies somewhere.

Owns: ``Binary``, and asking one for its version.
Must not: obtain one.
"""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.frozen import dataclass

__all__ = ["Binary", "inspect", "order"]

_SECONDS: Final = 20.0
_VERSION: Final = re.compile(r"Kubernetes (v\d+\.\d+\.\d+\S*)")
_NUMBERS: Final = re.compile(r"v(\d+)\.(\d+)(?:\.(\d+))?(-\S*)?")


@dataclass(frozen=True, slots=True)
class Binary:
    """A kube-proxy. ``origin`` says in a few words where it comes from."""

    path: Path
    version: str
    origin: str


def inspect(path: Path, origin: str, *, seconds: float = _SECONDS) -> Binary:
    """Ask a file which kube-proxy it is.

    Args:
        path: the file.
        origin: where it comes from.
        seconds: how long it may take to answer. Then it is killed, with all that it has started.

    Raises:
        CapabilityError: it is none, or none for this machine.
    """
    path = path.absolute()
    try:
        said = _version_of(path, seconds)
    except OSError as error:
        said = str(error)
    except subprocess.TimeoutExpired:
        said = f"nothing, in {seconds:.0f} s"
    version = _VERSION.search(said)
    if version is None:
        first = said.splitlines()[0] if said else "nothing"
        raise CapabilityError(
            f"a kube-proxy: {path} is none that runs here ('--version' says: {first})",
            "name another by --kube-proxy, such as a kubernetes checkout, which is built",
        )
    return Binary(path, version[1], origin)


def _version_of(path: Path, seconds: float) -> str:
    """What it says. Raises ``TimeoutExpired``, and ``OSError`` where it does not start."""
    with subprocess.Popen(
        [path, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"PATH": os.defpath},
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0].strip()
        except BaseException:
            # A wrapper's child would live on, and keep what it prints to open. The group's number cannot have become
            # another's: its leader was not waited for.
            os.killpg(process.pid, signal.SIGKILL)
            raise


def order(version: str) -> tuple[int, int, int, bool, str]:
    """By what versions are sorted; one that is not released yet comes before its release, and a bare minor is its .0.

    >>> sorted(["v1.34.10", "v1.34.9", "v1.35.0-rc.1", "v1.35.0", "v1.36"], key=order)
    ['v1.34.9', 'v1.34.10', 'v1.35.0-rc.1', 'v1.35.0', 'v1.36']
    """
    parts = _NUMBERS.match(version)
    if parts is None:
        return (0, 0, 0, False, version)
    major, minor, patch, suffix = parts.groups()
    before = suffix is not None and not suffix.startswith("-dirty")
    return (int(major), int(minor), int(patch or 0), not before, suffix or "")
