"""The cache of binaries, below XDG_CACHE_HOME (https://specifications.freedesktop.org/basedir-spec/).

A binary lies in ``proxylab/PROGRAM/VERSION/CHECKSUM/PROGRAM``, by the SHA-256 of its bytes. The cache writes it
under a temporary name and renames it (rename(2) is atomic), so a reader sees the whole file or none, even if several
processes run at once and one is killed. Obtaining a binary can take minutes: a lock makes one process fetch it while
the others wait.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from proxylab.binaries.binary import KUBE_PROXY, Binary, Program, inspect, order
from proxylab.errors import CapabilityError

__all__ = ["Cache"]

_CHUNK_BYTES: Final = 1 << 20


class Cache(Struct, frozen=True):
    """The cache of one program in a folder, which need not exist."""

    folder: Path
    program: Program = KUBE_PROXY

    @classmethod
    def of_user(cls, program: Program = KUBE_PROXY) -> Self:
        """The user's own."""
        given = os.environ.get("XDG_CACHE_HOME", "")
        home = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        return cls(home / "proxylab" / program.name, program)

    def binaries(self) -> list[Binary]:
        """The cached binaries, oldest version first; within a version the latest file comes last."""
        found = [path for path in self.folder.glob(f"v*/*/{self.program.name}") if path.is_file()]
        found.sort(key=lambda path: (order(path.parent.parent.name), path.stat().st_mtime_ns))
        return [Binary(path, path.parent.parent.name, self._origin(path)) for path in found]

    def of_origin(self, origin: str) -> Binary | None:
        """The binary of that origin that came into the cache last. Other origins may have the same version."""
        found = [each for each in self.binaries() if each.origin == origin]
        return max(found, key=lambda each: each.path.stat().st_mtime_ns, default=None)

    def keep(self, candidate: Path, origin: str) -> Binary:
        """Move a file into the cache. ``origin`` is its source, which the cache stores.

        Raises:
            CapabilityError: the file is not that program, or does not run on this machine.
        """
        candidate.chmod(0o755)
        version = inspect(candidate, origin, self.program).version
        folder = self.folder / version / _checksum(candidate)
        folder.mkdir(parents=True, exist_ok=True)
        note = candidate.with_suffix(".origin")
        note.write_text(origin, encoding="utf-8")
        note.replace(folder / "origin")
        candidate.replace(folder / self.program.name)
        return Binary(folder / self.program.name, version, origin)

    @contextmanager
    def workspace(self, what: str) -> Iterator[Path]:
        """A temporary folder on the cache's file system, with a lock: one process at a time works on ``what``.

        Raises:
            CapabilityError: the cache is not writable.
        """
        locks = self.folder / "locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
            lock = os.open(locks / hashlib.sha256(what.encode()).hexdigest()[:16], os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            cure = "make it writable, or set XDG_CACHE_HOME to a folder that is"
            raise CapabilityError(f"a writable folder for binaries ({error})", cure) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            working = Path(tempfile.mkdtemp(prefix=".work-", dir=self.folder))
            try:
                yield working
            finally:
                shutil.rmtree(working, ignore_errors=True)
        finally:
            os.close(lock)

    def _origin(self, path: Path) -> str:
        try:
            return (path.parent / "origin").read_text(encoding="utf-8").strip()
        except OSError:
            return "an earlier run"


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
