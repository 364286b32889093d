"""kube-proxy as Kubernetes releases it: the newest releases, and the download of one with its checksum.

https://kubernetes.io/releases/download/: below ``https://dl.k8s.io`` lie ``release/stable.txt`` (the newest release),
``release/stable-1.34.txt`` (the newest of a minor), and for each release
``release/VERSION/bin/linux/ARCHITECTURE/kube-proxy`` with its SHA-256 beside it.
"""

import platform
import re
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import Binary, order
from proxylab.binaries.cache import Cache
from proxylab.binaries.download import load, text_at
from proxylab.errors import CapabilityError

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
        newest = text_at(f"{self.site}/release/stable.txt")
        parts = _VERSION.fullmatch(newest)
        if parts is None:
            raise CapabilityError(f"a release: {self.site}/release/stable.txt has {newest[:40]!r}", "try again later")
        found = [newest]
        for minor in range(int(parts[1]) - 1, int(parts[1]) - _MOST_MINORS, -1):
            try:
                found.append(text_at(f"{self.site}/release/stable-1.{minor}.txt"))
            except CapabilityError:
                continue
        return sorted((each for each in found if _VERSION.fullmatch(each)), key=order)

    def origin(self, version: str) -> str:
        """The address of one release for this machine."""
        return f"{self.site}/{self._path(version)}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Download one release. Raises ``CapabilityError``."""
        machine = platform.machine()
        if machine not in _ARCHITECTURES:
            raise CapabilityError(f"a release of kube-proxy for {machine}", "build one: --kube-proxy module:")
        with cache.workspace(f"release {self.site} {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process downloaded it while this one waited
                return known
            candidate = folder / "kube-proxy"
            load(self.origin(version), candidate)
            return cache.keep(candidate, self.origin(version))

    def _path(self, version: str) -> str:
        machine = platform.machine()
        return f"release/{version}/bin/linux/{_ARCHITECTURES.get(machine, machine)}/kube-proxy"
