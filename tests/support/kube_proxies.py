"""Programs that report a kube-proxy's version, and the places that serve them."""

from dataclasses import dataclass, field
from pathlib import Path

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binary_identity import BinaryIdentity
from proxylab.errors import CapabilityError

PROGRAM = "#!/bin/sh\necho Kubernetes {version}\n"


def program(path: Path, version: str, comment: str = "") -> Path:
    path.write_text(PROGRAM.format(version=version) + comment)
    path.chmod(0o755)
    return path


def identity(version: str, origin: str = "a test", digest: str = "0123456789abcdef" * 4) -> BinaryIdentity:
    return BinaryIdentity(version=version, origin=origin, digest=digest)


@dataclass
class BundleStore:
    """A source whose kube-proxies are scripts."""

    has: tuple[str, ...] = ()
    fails: str = ""
    silent: str = ""
    torn: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def versions(self) -> list[str]:
        if self.silent:
            raise CapabilityError(self.silent, "cure")
        return list(self.has)

    def origin(self, version: str) -> str:
        return f"the shelf's {version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        self.asked.append(version)
        if self.fails or version in self.torn or version not in (*self.has, *self.unlisted):
            raise CapabilityError(self.fails or f"no {version}", "cure")
        with cache.workspace(version) as folder:
            return cache.keep(program(folder / "kube-proxy", version), self.origin(version))
