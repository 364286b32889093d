"""Which kube-proxy runs.

Owns: ``obtain``: what the user's words mean, and the order in which sources are asked.
Must not: know how any source works.

What ``--kube-proxy`` may say: a file; a checkout of kubernetes, which is built; ``image:REFERENCE``, a container image;
``release:VERSION``, what Kubernetes has released; ``module:VERSION``, built from Go modules. Where nothing is said,
what is in the cache is taken if it fits, and else what is released, then what can be built.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from lab.binaries.binary import Binary, inspect, order
from lab.binaries.cache import Cache
from lab.binaries.checkout import CheckoutSource, is_checkout
from lab.binaries.image import ImageSource
from lab.binaries.module import ModuleSource
from lab.binaries.release import ReleaseSource
from lab.engines.names import EngineName
from lab.errors import CapabilityError

__all__ = ["Source", "Sources", "obtain"]

Tell = Callable[[str], None]

_CURE: Final = (
    "name one by --kube-proxy (or LAB_KUBE_PROXY): a file, a kubernetes checkout, or "
    "image:registry.k8s.io/kube-proxy:v1.X.Y; `proxylab engines` says what else there is"
)


class Source(Protocol):
    """Something that has kube-proxies of several versions."""

    def versions(self) -> list[str]:
        """Those it has, oldest first. Raises ``CapabilityError``: it does not answer."""

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Put one into the cache. Raises ``CapabilityError``."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where binaries may come from, in the order in which they are asked.

    Attributes:
        cache: what was obtained before.
        by_version: asked for a version, by the word that names each of them.
    """

    cache: Cache
    by_version: Mapping[str, Source] = field(
        default_factory=lambda: {"release": ReleaseSource(), "module": ModuleSource()}
    )

    @classmethod
    def of_user(cls) -> "Sources":
        """Those of this user on this machine."""
        return cls(Cache.of_user())


def obtain(name: EngineName, where: str, sources: Sources, tell: Tell) -> Binary:
    """The kube-proxy for an engine.

    Args:
        name: the engine's; its version may be empty (the newest there is) or lack its patch.
        where: what the user said of where to take it from; empty for nothing.
        sources: the possible ones.
        tell: is told, in a line, what is going on when it takes long.

    Raises:
        CapabilityError: there is none; says why, source by source.
    """
    if where:
        binary = _named(where, name, sources, tell)
        if name.version and not _fits(binary.version, name.version):
            raise CapabilityError(
                f"kube-proxy {name.version}: {where} has {binary.version}", "ask for another version, or for none"
            )
        return binary
    cached = [each for each in sources.cache.binaries() if _fits(each.version, name.version)]
    if cached:
        return cached[-1]
    return _newest(name.version, sources.by_version, sources.cache, tell)


def _named(where: str, name: EngineName, sources: Sources, tell: Tell) -> Binary:
    kind, _, rest = where.partition(":")
    if kind == "image" and rest:
        tell(f"taking kube-proxy out of image {rest}")
        return ImageSource(rest).obtain(sources.cache)
    if kind in sources.by_version:
        return _newest(rest or name.version, {kind: sources.by_version[kind]}, sources.cache, tell)
    path = Path(where).expanduser()
    if is_checkout(path):
        tell(f"building kube-proxy in {path}; Go's cache makes the next time quick")
        return CheckoutSource(path).obtain(sources.cache)
    if path.is_file():
        return inspect(path, str(path))
    what = "is a folder, but no checkout of kubernetes" if path.is_dir() else "is not there"
    raise CapabilityError(f"a kube-proxy: {where} {what}", _CURE)


def _newest(wanted: str, sources: Mapping[str, Source], cache: Cache, tell: Tell) -> Binary:
    """The newest that fits of the first source that has one."""
    reasons: list[str] = []
    for word, source, version in _offers(wanted, sources, reasons):
        known = [each for each in cache.binaries() if each.version == version]
        if known:
            return known[-1]
        try:
            tell(f"obtaining kube-proxy {version} ({word}); this is done once")
            return source.obtain(version, cache)
        except CapabilityError as error:
            reasons.append(f"{word}: {error.missing}")
    raise CapabilityError(f"kube-proxy{wanted and ' '}{wanted} (" + "; ".join(reasons) + ")", _CURE)


def _offers(wanted: str, sources: Mapping[str, Source], reasons: list[str]) -> Iterator[tuple[str, Source, str]]:
    for word, source in sources.items():
        try:
            versions = source.versions()
        except CapabilityError as error:
            reasons.append(f"{word}: {error.missing}")
            continue
        fitting: Sequence[str] = [version for version in versions if _fits(version, wanted)]
        if not fitting and wanted.count(".") == 2:
            fitting = [wanted]  # a proxy's list need not be whole: asking for one by name tells
        if fitting:
            yield word, source, max(fitting, key=order)
        else:
            reasons.append(f"{word}: has none of {wanted or 'any version'}")


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is the one that is wanted, or a patch of the minor that is."""
    return not wanted or version == wanted or (wanted.count(".") == 1 and version.startswith(f"{wanted}."))
