"""kube-proxy as Kubernetes releases it: the newest releases, and the download of one with its checksum.

https://kubernetes.io/releases/download/: below ``https://dl.k8s.io`` lie ``release/stable.txt`` (the newest release),
``release/stable-1.34.txt`` (the newest of a minor), and for each release
``release/VERSION/bin/linux/ARCHITECTURE/kube-proxy`` with its SHA-256 beside it.
"""

import hashlib
import http.client
import platform
import re
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import Binary, order
from proxylab.binaries.cache import Cache
from proxylab.errors import CapabilityError

__all__ = ["ReleaseSource"]

_ANSWER_SECONDS: Final = 20.0
_CHUNK_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 512 << 20
_VERSION: Final = re.compile(r"v1\.(\d+)\.\d+")
_MOST_MINORS: Final = 5
_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}


class ReleaseSource(Struct, frozen=True):
    """Downloads from ``site``."""

    site: str = "https://dl.k8s.io"

    def versions(self) -> list[str]:
        """The newest release of the newest minors, oldest first. The site has more, which the user may name.

        Raises:
            CapabilityError: the site does not answer.
        """
        newest = self._text("release/stable.txt")
        parts = _VERSION.fullmatch(newest)
        if parts is None:
            raise CapabilityError(f"a release: {self.site}/release/stable.txt has {newest[:40]!r}", "try again later")
        found = [newest]
        for minor in range(int(parts[1]) - 1, int(parts[1]) - _MOST_MINORS, -1):
            try:
                found.append(self._text(f"release/stable-1.{minor}.txt"))
            except CapabilityError:
                continue
        return sorted((each for each in found if _VERSION.fullmatch(each)), key=order)

    def origin(self, version: str) -> str:
        """The address of one release for this machine."""
        return f"{self.site}/{self._path(version)}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Download one release.

        Raises:
            CapabilityError: the site does not have it, or its checksum is wrong.
        """
        machine = platform.machine()
        if machine not in _ARCHITECTURES:
            raise CapabilityError(f"a release of kube-proxy for {machine}", "build one: --kube-proxy module:")
        path = self._path(version)
        with cache.workspace(f"release {self.site} {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process downloaded it while this one waited
                return known
            wanted = self._text(f"{path}.sha256").partition(" ")[0].lower()
            candidate = folder / "kube-proxy"
            found = self._load(path, candidate)
            if found != wanted:
                raise CapabilityError(
                    f"a whole kube-proxy: {self.site}/{path} has SHA-256 {found}, expected {wanted[:64]}",
                    "try again; if the error stays, do not trust that site",
                )
            return cache.keep(candidate, self.origin(version))

    def _path(self, version: str) -> str:
        machine = platform.machine()
        return f"release/{version}/bin/linux/{_ARCHITECTURES.get(machine, machine)}/kube-proxy"

    def _text(self, path: str) -> str:
        with closing(self._open(path)) as answer:
            return str(answer.read(4096).decode(errors="replace").strip())

    def _load(self, path: str, file: Path) -> str:
        """Download into ``file``, and return the SHA-256 of its bytes."""
        digest, size = hashlib.sha256(), 0
        with closing(self._open(path)) as answer, file.open("wb") as out:
            try:
                while chunk := answer.read(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > _MOST_BYTES:
                        raise CapabilityError(f"a kube-proxy: {self.site}/{path} does not end", "try again later")
                    digest.update(chunk)
                    out.write(chunk)
            except (OSError, http.client.HTTPException) as error:
                raise CapabilityError(f"a whole {self.site}/{path} ({error!r})", "try again later") from error
        return digest.hexdigest()

    def _open(self, path: str) -> http.client.HTTPResponse:
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(f"{self.site}/{path}", timeout=_ANSWER_SECONDS)  # noqa: S310
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            reason = getattr(reason, "strerror", None) or reason  # without the number before it
            raise CapabilityError(f"{self.site}/{path} ({reason})", "try where that can be reached") from error
        return answer
