"""Binaries that were obtained once.

Owns: the folder below XDG_CACHE_HOME (https://specifications.freedesktop.org/basedir-spec/), and that a file in it is
whole.
Must not: know where a binary comes from.

A binary lies in ``proxylab/kube-proxy/VERSION/CHECKSUM/kube-proxy``, by the SHA-256 of its own bytes. It is written
under a name of its own and then renamed (rename(2) is atomic), so whoever looks sees all of it or nothing, however many
run at once and whenever one of them is killed. Obtaining takes minutes at times: a lock lets one of those who want the
same thing fetch it while the others wait.
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

from proxylab.binaries.binary import Binary, inspect, order
from proxylab.errors import CapabilityError
from proxylab.frozen import dataclass

__all__ = ["Cache"]

_NAME: Final = "kube-proxy"
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache in a folder, which need not exist."""

    folder: Path

    @classmethod
    def of_user(cls) -> Self:
        """The user's own."""
        given = os.environ.get("XDG_CACHE_HOME", "")
        home = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        return cls(home / "proxylab" / "kube-proxy")

    def binaries(self) -> list[Binary]:
        """What is there, oldest version first; of one version the one that came last is last."""
        found = [path for path in self.folder.glob(f"v*/*/{_NAME}") if path.is_file()]
        found.sort(key=lambda path: (order(path.parent.parent.name), path.stat().st_mtime_ns))
        return [Binary(path, path.parent.parent.name, self._origin(path)) for path in found]

    def keep(self, candidate: Path, origin: str) -> Binary:
        """Put a file into the cache; the candidate is moved.

        Args:
            candidate: a whole file, in ``workspace``.
            origin: where it comes from, for those who look at the cache.

        Raises:
            CapabilityError: it is no kube-proxy, or none for this machine.
        """
        candidate.chmod(0o755)
        version = inspect(candidate, origin).version
        netns_name = self.folder / version / _checksum(candidate)
        netns_name.mkdir(parents=True, exist_ok=True)
        note = candidate.with_suffix(".origin")
        note.write_text(origin, encoding="utf-8")
        note.replace(netns_name / "origin")
        candidate.replace(netns_name / _NAME)
        return Binary(netns_name / _NAME, version, origin)

    @contextmanager
    def workspace(self, what: str) -> Iterator[Path]:
        """A folder beside the cache to work in, for one at a time of those who want ``what``; removed in the end.

        Raises:
            CapabilityError: the cache cannot be written.
        """
        locks = self.folder / "locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
            lock = os.open(locks / hashlib.sha256(what.encode()).hexdigest()[:16], os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            cure = "make it yours, or let XDG_CACHE_HOME name a folder that is"
            raise CapabilityError(f"a folder for binaries that can be written ({error})", cure) from error
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
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
