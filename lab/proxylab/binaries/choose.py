"""Which kube-proxy runs.

Owns: ``obtain``: what the user's words mean; and ``newest`` and ``offers``, what there is.
Must not: know how any source works.

What ``--kube-proxy`` may say: a file; a checkout of kubernetes, which is built; ``image:REFERENCE``, a container image;
``release:VERSION``, what Kubernetes has released; ``module:VERSION``, built from Go modules. Where nothing is said,
what is in the cache is taken if it fits, and else the newest that any source has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from proxylab.binaries.binary import Binary, inspect, order
from proxylab.binaries.cache import Cache
from proxylab.binaries.checkout import CheckoutSource, is_checkout
from proxylab.binaries.image import ImageSource
from proxylab.binaries.module import ModuleSource
from proxylab.binaries.release import ReleaseSource
from proxylab.engines.names import EngineName
from proxylab.errors import CapabilityError
from proxylab.frozen import dataclass

__all__ = ["Offer", "Source", "Sources", "UnobtainableError", "newest", "obtain", "offers"]

Tell = Callable[[str], None]

_CURE: Final = (
    "name one by --kube-proxy (or LAB_KUBE_PROXY): a file, a kubernetes checkout, or "
    "image:registry.k8s.io/kube-proxy:v1.X.Y; `proxylab engines` says what else there is"
)


_HOW: Final = {"module": "by Go, which takes some nine minutes of one processor"}
"""What is worth knowing of a source before it is waited for."""

_MOST_PATCHES: Final = 12


class UnobtainableError(CapabilityError):
    """No source had a kube-proxy. ``answered`` says whether any of them was there to be asked."""

    def __init__(self, missing: str, cure: str, *, answered: bool) -> None:
        super().__init__(missing, cure)
        self.answered = answered


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
    return newest(name.version, sources, tell)


def _named(where: str, name: EngineName, sources: Sources, tell: Tell) -> Binary:
    kind, _, rest = where.partition(":")
    if kind == "image" and rest:
        tell(f"taking kube-proxy out of image {rest}")
        return ImageSource(rest).obtain(sources.cache)
    if kind in sources.by_version:
        only = Sources(sources.cache, {kind: sources.by_version[kind]})
        return newest(rest or name.version, only, tell)
    path = Path(where).expanduser()
    if is_checkout(path):
        tell(f"building kube-proxy in {path}; Go's cache makes the next time quick")
        return CheckoutSource(path).obtain(sources.cache)
    if path.is_file():
        return inspect(path, str(path))
    what = "is a folder, but no checkout of kubernetes" if path.is_dir() else "is not there"
    raise CapabilityError(f"a kube-proxy: {where} {what}", _CURE)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one source answers: the versions it lists, oldest first, or why it lists none."""

    word: str
    versions: tuple[str, ...] = ()
    silence: str = ""


def offers(sources: Sources) -> tuple[Offer, ...]:
    """What each source has to offer, in the order in which they are preferred."""
    return tuple(_offer(word, source) for word, source in sources.by_version.items())


def _offer(word: str, source: Source) -> Offer:
    try:
        return Offer(word, tuple(source.versions()))
    except CapabilityError as error:
        return Offer(word, silence=error.missing)


def newest(wanted: str, sources: Sources, tell: Tell) -> Binary:
    """The newest version that fits of all that sources offer; of one version by the source that is preferred.

    A list may name what its source then cannot give. Where the newest cannot be had, what is in the cache and fits is
    taken, and else the patches before it are asked for, a few.

    Raises:
        UnobtainableError: there is none, or it could not be obtained.
    """
    made = offers(sources)
    reasons = [f"{offer.word}: {offer.silence}" for offer in made if offer.silence]
    candidates = [
        (version, offer.word) for offer in made if not offer.silence for version in _fitting(offer.versions, wanted)
    ]
    for number, (version, word) in enumerate(sorted(candidates, key=lambda each: order(each[0]), reverse=True)):
        enough = version.rpartition(".")[0] if number else version
        known = [each for each in sources.cache.binaries() if _fits(each.version, enough)]
        if known:
            return known[-1]
        tell(f"obtaining kube-proxy {version} ({_HOW.get(word, word)}); this is done once")
        try:
            return sources.by_version[word].obtain(version, sources.cache)
        except CapabilityError as error:
            reasons.append(f"{word}: {error.missing}")
    missing = f"kube-proxy{wanted and ' '}{wanted} ({'; '.join(reasons) or 'no source has it'})"
    raise UnobtainableError(missing, _CURE, answered=any(not offer.silence for offer in made))


def _fitting(versions: Sequence[str], wanted: str) -> Sequence[str]:
    """The newest patches of the newest minor that fits; what is wanted by its whole name even if it is not listed."""
    fitting = sorted((version for version in versions if _fits(version, wanted)), key=order, reverse=True)
    if not fitting:
        return [wanted] if wanted.count(".") == 2 else []
    return [version for version in fitting if order(version)[:2] == order(fitting[0])[:2]][:_MOST_PATCHES]


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is the one that is wanted, or a patch of the minor that is."""
    return not wanted or version == wanted or (wanted.count(".") == 1 and version.startswith(f"{wanted}."))
