"""The cache of binaries, below XDG_CACHE_HOME (https://specifications.freedesktop.org/basedir-spec/).

A binary lies in ``proxylab/PROGRAM/VERSION/DIGEST/PROGRAM``, by the SHA-256 of its bytes. The cache writes it
under a temporary name and renames it (rename(2) is atomic), so a reader sees the whole file or none, even if several
processes run at once and one is killed. Obtaining a binary can take minutes: a lock makes one process fetch it while
the others wait.

What a user built, or took out of an image, lies apart from that (``Cache.part``): it may call itself by the version of
a release, and must never stand for it.
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
from msgspec.structs import replace

from proxylab.binaries.binary import KUBE_PROXY, Binary, BinaryProgram, inspect, order
from proxylab.binary_identity import BinaryIdentity
from proxylab.errors import CapabilityError

_SIZE: Final = "size"


class Cache(Struct, frozen=True):
    """The cache of one program in a folder, which need not exist."""

    folder: Path
    program: BinaryProgram = KUBE_PROXY

    @classmethod
    def of_user(cls, program: BinaryProgram = KUBE_PROXY) -> Self:
        """The user's own."""
        given = os.environ.get("XDG_CACHE_HOME", "")
        home = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        return cls(home / "proxylab" / program.name, program)

    def part(self, name: str) -> Self:
        """A cache below this one, whose binaries are not among those of this one."""
        return replace(self, folder=self.folder / name)

    def binaries(self) -> list[Binary]:
        """The cached binaries, oldest version first; within a version the latest file comes last.

        There are none in a folder that this user may not read, such as that of root, whose HOME ``setpriv`` keeps.
        """
        if not os.access(self.folder, os.R_OK | os.X_OK):
            return []
        found = [path for path in self.folder.glob(f"v*/*/{self.program.name}") if path.is_file() and _is_whole(path)]
        found.sort(key=lambda path: (order(path.parent.parent.name), path.stat().st_mtime_ns))
        return [Binary(path, self._identity(path.parent)) for path in found]

    def of_origin(self, origin: str) -> Binary | None:
        """The binary of that origin that came into the cache last. Other origins may have the same version."""
        found = [each for each in self.binaries() if each.origin == origin]
        return max(found, key=lambda each: each.path.stat().st_mtime_ns, default=None)

    def keep(self, candidate: Path, origin: str, commit: str = "", *, dirty: bool | None = None) -> Binary:
        """Move a file into the cache. ``origin`` is its source, which the cache stores.

        ``commit`` and ``dirty`` are those of its sources; by default, what the binary itself prints.

        Raises:
            CapabilityError: the file is not that program, or does not run on this machine.
        """
        candidate.chmod(0o755)
        found = inspect(candidate, origin, self.program).identity
        identity = replace(found, commit=commit, dirty=dirty) if commit else found
        folder = self.folder / identity.version / identity.digest
        folder.mkdir(parents=True, exist_ok=True)
        size = str(candidate.stat().st_size)
        commit_and_state = f"{identity.commit} {identity.state}".rstrip()
        for name, text in (("origin", origin), ("commit", commit_and_state), (_SIZE, size)):
            note = candidate.with_suffix(f".{name}")
            note.write_text(text, encoding="utf-8")
            note.replace(folder / name)
        candidate.replace(folder / self.program.name)
        return Binary(folder / self.program.name, identity)

    @contextmanager
    def workspace(self, what: str) -> Iterator[Path]:
        """A temporary folder on the cache's file system, with a lock: one process at a time works on ``what``.

        Raises:
            CapabilityError: the cache is not writable.
        """
        locks = self.folder / "locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256(what.encode()).hexdigest()[:16]
            lock = os.open(locks / name, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            cure = "make it writable, or set XDG_CACHE_HOME to a folder that is"
            raise CapabilityError(f"a writable folder for binaries ({error})", cure) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in self.folder.glob(f".work-{name}-*"):  # by a process that was killed: the lock is ours now
                shutil.rmtree(left, ignore_errors=True)
            working = Path(tempfile.mkdtemp(prefix=f".work-{name}-", dir=self.folder))
            try:
                yield working
            finally:
                shutil.rmtree(working, ignore_errors=True)
        finally:
            os.close(lock)

    def _identity(self, folder: Path) -> BinaryIdentity:
        """Of the binary in a folder ``VERSION/DIGEST``, with the notes that ``keep`` has written beside it."""
        commit, _, state = _note(folder / "commit").partition(" ")
        return BinaryIdentity(
            program=self.program.name,
            version=folder.parent.name,
            origin=_note(folder / "origin") or "an unknown source",
            digest=folder.name,
            commit=commit,
            dirty=state == "dirty" if state else None,
        )


def _is_whole(binary: Path) -> bool:
    """Whether the file is as large as it was when it came into the cache: a machine that lost power may cut it.

    Then it is no entry, and is obtained again. Entries of earlier versions of proxylab have no note of their size.
    """
    return _note(binary.with_name(_SIZE)) in ("", str(binary.stat().st_size))


def _note(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
