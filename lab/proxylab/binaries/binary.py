"""A program of the cluster that a lab runs, its binary on disk, and what it is: ``BinaryIdentity``."""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.commands import TooMuchOutputError, run_guarded
from proxylab.binary_identity import BinaryIdentity
from proxylab.errors import CapabilityError

_VERSION_SECONDS: Final = 20.0
_MOST_PRINTED: Final = 1 << 20
_NUMBERS: Final = re.compile(r"v(\d+)\.(\d+)(?:\.(\d+))?(-\S*)?")


class BinaryProgram(Struct, frozen=True):
    """A program that is obtained as a binary.

    Attributes:
        name: of its file.
        asked: the argument that makes it print its version.
        version: finds the version, without the ``v``, in what it prints.
        cost: what a lab cannot do without it.
        cure: what a user without it can do.
        asked_commit: the argument that makes it print its commit and the state of the tree; empty if none does.
    """

    name: str
    asked: str
    version: str
    cost: str
    cure: str
    asked_commit: str = ""


KUBE_PROXY: Final = BinaryProgram(
    "kube-proxy",
    "--version",
    r"Kubernetes v(\d+\.\d+\S*)",
    "a run whose --engine is kube-proxy/… obtains one first",
    "name another by --kube-proxy, such as a kubernetes checkout, which is built",
    "--version=raw",
)
COREDNS: Final = BinaryProgram(
    "coredns",
    "-version",
    r"CoreDNS-(\d+\.\d+\.\d+\S*)",
    "--name-server coredns is refused",
    "name another by --name-server, or type `proxylab engines --obtain coredns`",
)
CONTROL_PLANE: Final = BinaryProgram(
    "control-plane",
    "--version",
    r"Kubernetes v(\d+\.\d+\S*)",
    "--control-plane real and `controlPlane: real` are refused",
    "type `proxylab engines --obtain control-plane`, once",
)


_COMMIT: Final = re.compile(r'GitCommit:"([0-9a-f]{7,64})"(?:, GitTreeState:"(clean|dirty)")?')
"""In the output for ``asked_commit``. A build that sets no commit prints a placeholder."""


class Binary(Struct, frozen=True):
    """A binary of a program on disk."""

    path: Path
    identity: BinaryIdentity

    @property
    def version(self) -> str:
        """As the binary prints it."""
        return self.identity.version

    @property
    def origin(self) -> str:
        """Its source in a few words."""
        return self.identity.origin

    def to_document(self) -> dict[str, object]:
        """What JSON output says of it."""
        return {"path": str(self.path), **self.identity.to_document()}


def inspect(
    path: Path, origin: str, program: BinaryProgram = KUBE_PROXY, *, seconds: float = _VERSION_SECONDS
) -> Binary:
    """Let a file print its version and its commit, and read that.

    After ``seconds`` for each, the file and its children are killed.

    Raises:
        CapabilityError: the file is not that program, or does not run on this machine.
    """
    path = path.absolute()
    try:
        output = _printed(path, program.asked, seconds)
    except OSError as error:
        output = str(error)
    except subprocess.TimeoutExpired:
        output = f"nothing, in {seconds:.0f} s"
    except TooMuchOutputError as error:
        output = str(error)
    version = re.search(program.version, output)
    if version is None:
        first = output.splitlines()[0] if output else "nothing"
        raise CapabilityError(
            f"a {program.name}: {path} is none that runs here ('{program.asked}' prints: {first})", program.cure
        )
    commit, dirty = _commit_of(path, program, seconds)
    identity = BinaryIdentity(
        program=program.name,
        version=f"v{version[1]}",
        origin=origin,
        digest=digest_of(path),
        commit=commit,
        dirty=dirty,
    )
    return Binary(path, identity)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimals."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _commit_of(path: Path, program: BinaryProgram, seconds: float) -> tuple[str, bool | None]:
    """The commit that it was built at, and whether the tree was dirty, if it prints that."""
    if not program.asked_commit:
        return "", None
    try:
        found = _COMMIT.search(_printed(path, program.asked_commit, seconds))
    except (OSError, subprocess.SubprocessError):
        found = None
    return (found[1], found[2] == "dirty" if found[2] else None) if found else ("", None)


def _printed(path: Path, asked: str, seconds: float) -> str:
    """Its output. Raises ``OSError`` where it does not start, and ``SubprocessError`` where it was ended."""
    done = run_guarded((path, asked), seconds=seconds, environment={"PATH": os.defpath}, most=_MOST_PRINTED)
    return (done.output + done.errors).decode(errors="replace").strip()


def order(version: str) -> tuple[int, int, int, bool, str]:
    """The sort key of a version: a prerelease comes before its release, and a bare minor counts as its .0.

    >>> sorted(["v1.34.10", "v1.34.9", "v1.35.0-rc.1", "v1.35.0", "v1.36"], key=order)
    ['v1.34.9', 'v1.34.10', 'v1.35.0-rc.1', 'v1.35.0', 'v1.36']
    """
    parts = _NUMBERS.match(version)
    if parts is None:
        return (0, 0, 0, False, version)
    major, minor, patch, suffix = parts.groups()
    before = suffix is not None and not suffix.startswith("-dirty")
    return (int(major), int(minor), int(patch or 0), not before, suffix or "")
