"""Chooses the kube-proxy that runs, from the user's options and the sources.

Values of ``--kube-proxy``: a file; a checkout of kubernetes, which is built; ``image:REFERENCE``, a container image;
``release:VERSION``, a release of Kubernetes; ``module:VERSION``, built from Go modules. Without a value, a fitting
binary from the cache runs, or else the newest of all sources. Only what ``release`` and ``module`` have given stands
for a version or for the default. A file, a checkout or an image may call itself by any version.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, field

from proxylab.binaries.binary import KUBE_PROXY, Binary, inspect, order
from proxylab.binaries.cache import Cache
from proxylab.binaries.checkout import CheckoutSource, is_checkout
from proxylab.binaries.image import ImageSource
from proxylab.binaries.module import RELEASE, ModuleSource
from proxylab.binaries.release import ReleaseSource
from proxylab.cluster.configuration import Mode
from proxylab.engines.engine_names import EngineName, read_engine
from proxylab.engines.protocol import Upstream
from proxylab.errors import CapabilityError

Tell = Callable[[str], None]

_CURE: Final = (
    "name one by --kube-proxy (or LAB_KUBE_PROXY): a file, a kubernetes checkout, or "
    "image:registry.k8s.io/kube-proxy:v1.X.Y; `proxylab engines` lists what else there is"
)


SLOW_NOTES: Final = {
    ("kube-proxy", "module"): "by Go, which takes some nine minutes of one processor",
    ("coredns", "module"): "by Go, which takes some two minutes of one processor",
    ("control-plane", "module"): "by Go, which takes some eleven minutes of one processor",
}
"""A warning about slow sources."""

_MOST_PATCHES: Final = 12


class UnobtainableError(CapabilityError):
    """No source had the program. ``answered`` says whether any source answered."""

    def __init__(self, missing: str, cure: str, *, answered: bool) -> None:
        super().__init__(missing, cure)
        self.answered = answered


class VersionSource(Protocol):
    """A source of a program in several versions."""

    def versions(self) -> list[str]:
        """Its versions, oldest first. Raises ``CapabilityError`` where it does not answer."""

    def origin(self, version: str) -> str:
        """The origin that one version from here has in the cache."""

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Put one version into the cache. Raises ``CapabilityError``."""


class Sources(Struct, frozen=True):
    """The sources of binaries, in order of preference.

    Attributes:
        cache: binaries obtained before.
        by_version: sources of any version, by their words in ``--kube-proxy``.
    """

    cache: Cache
    by_version: Mapping[str, VersionSource] = field(
        default_factory=lambda: {"release": ReleaseSource(), "module": ModuleSource()}
    )

    @classmethod
    def of_user(cls) -> "Sources":
        """The sources of this user on this machine."""
        return cls(Cache.of_user())

    def obtained(self) -> list[Binary]:
        """The cached binaries that came from one of these sources by version, oldest version first."""
        origins = [source.origin for source in self.by_version.values()]
        return [
            each for each in self.cache.binaries() if any(origin(each.version) == each.origin for origin in origins)
        ]


def obtain(name: EngineName, where: str, sources: Sources, tell: Tell) -> Binary:
    """The kube-proxy for an engine.

    Args:
        name: the engine's; its version may be empty (the newest) or lack its patch.
        where: the user's value of ``--kube-proxy``, or empty.
        sources: the possible sources.
        tell: gets a line about each slow action.

    Raises:
        BuildError: the user's checkout does not build.
        CapabilityError: there is none; the message gives the reason of each source.
    """
    if where:
        binary = _from_source(where, name, sources, tell)
        if name.version and not fits(binary.version, name.version):
            raise CapabilityError(
                f"kube-proxy {name.version}: {where} has {binary.version}", "ask for another version, or for none"
            )
        _refuse_without_mode(binary.version, name)
        return binary
    if name.version:
        _refuse_without_mode(name.version, name)
    cached = _known(with_mode(sources.obtained(), name.mode), name.version)
    if cached:
        return cached[-1]
    last = Mode(name.mode).facts.last_minor
    return newest(name.version or (f"v{last[0]}.{last[1]}" if last else ""), sources, tell)


def with_mode(binaries: Sequence[Binary], mode: str) -> list[Binary]:
    """The binaries that have a mode, in their order."""
    first, last = _minors_with(mode)
    return [each for each in binaries if first <= order(each.version)[:2] <= last]


def _minors_with(mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last minor version that have a mode."""
    facts = Mode(mode).facts
    return facts.since or (0, 0), facts.last_minor or (sys.maxsize, 0)


def _refuse_without_mode(version: str, name: EngineName) -> None:
    """Raise ``CapabilityError`` for a version that lacks the engine's mode."""
    (first, last), minor = _minors_with(name.mode), order(version)[:2]
    if minor > last:
        cure = f"name a version up to v{last[0]}.{last[1]}, the last one"
    elif minor < first:
        cure = f"name a version from v{first[0]}.{first[1]} on, the first one"
    else:
        return
    raise CapabilityError(f"mode {name.mode} in kube-proxy {version}", cure)


def _from_source(where: str, name: EngineName, sources: Sources, tell: Tell) -> Binary:
    kind, _, rest = where.partition(":")
    if kind == "image" and rest:
        tell(f"taking kube-proxy out of image {rest}")
        return ImageSource(rest).obtain(sources.cache)
    if kind in sources.by_version:
        only = Sources(sources.cache, {kind: sources.by_version[kind]})
        return newest(rest or name.version, only, tell)
    path = Path(where).expanduser()
    if is_checkout(path):
        return CheckoutSource(path).obtain(sources.cache, tell)
    if path.is_file():
        return inspect(path, f"the file {path.absolute()}")
    what = "is a folder, but not a checkout of kubernetes" if path.is_dir() else "does not exist"
    raise CapabilityError(f"a kube-proxy: {where} {what}", _CURE)


class Offer(Struct, frozen=True):
    """The versions that one source lists, oldest first, or why it lists none."""

    word: str
    versions: tuple[str, ...] = ()
    error: str = ""

    def to_document(self) -> dict[str, object]:
        """What JSON output says of it."""
        return {"name": self.word, "versions": list(self.versions), "missing": self.error or None}


def offers(sources: Sources) -> tuple[Offer, ...]:
    """The offer of each source, in order of preference."""
    return tuple(_offer(word, source) for word, source in sources.by_version.items())


def _offer(word: str, source: VersionSource) -> Offer:
    try:
        return Offer(word, tuple(source.versions()))
    except CapabilityError as failure:
        return Offer(word, error=failure.missing)


def newest(wanted: str, sources: Sources, tell: Tell) -> Binary:
    """The newest fitting version of all sources, from the preferred source that has it.

    A source may list versions that it cannot deliver. Where the newest fails, a fitting binary that one of these
    sources has put into the cache runs, or else one of the few patches before it.

    Raises:
        UnobtainableError: no source has a fitting version, or none could deliver it.
    """
    made, program = offers(sources), sources.cache.program.name
    reasons = [f"{offer.word}: {offer.error}" for offer in made if offer.error]
    candidates = [
        (version, offer.word) for offer in made if not offer.error for version in _fitting(offer.versions, wanted)
    ]
    for number, (version, word) in enumerate(sorted(candidates, key=lambda each: order(each[0]), reverse=True)):
        enough = version.rpartition(".")[0] if number else version
        known = _known(sources.obtained(), enough)
        if known:
            return known[-1]
        note = SLOW_NOTES.get((program, word), word)
        tell(f"obtaining {program} {version} ({note}); this is done once")
        try:
            return sources.by_version[word].obtain(version, sources.cache)
        except CapabilityError as error:
            reasons.append(f"{word}: {error.missing}")
    missing = f"{program}{wanted and ' '}{wanted} ({'; '.join(reasons) or 'no source has it'})"
    cure = _CURE if program == KUBE_PROXY.name else sources.cache.program.cure
    raise UnobtainableError(missing, cure, answered=any(not offer.error for offer in made))


def _known(binaries: Sequence[Binary], wanted: str) -> list[Binary]:
    """Those that fit, in their order. A prerelease runs only where its whole name is wanted."""
    return [
        each
        for each in binaries
        if fits(each.version, wanted) and (each.version == wanted or RELEASE.fullmatch(each.version))
    ]


def _fitting(versions: Sequence[str], wanted: str) -> Sequence[str]:
    """The newest patches of the newest fitting minor; a wanted full version even where the source does not list it."""
    fitting = sorted((version for version in versions if fits(version, wanted)), key=order, reverse=True)
    if not fitting:
        return [wanted] if RELEASE.match(wanted) else []
    return [version for version in fitting if order(version)[:2] == order(fitting[0])[:2]][:_MOST_PATCHES]


def fits(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or a patch of the wanted minor, as a checkout without a tag is, too."""
    is_minor = wanted.count(".") == 1
    return not wanted or version == wanted or (is_minor and version.startswith((f"{wanted}.", f"{wanted}+")))


def newest_kept(cache: Cache, wanted: str, what: str) -> Binary:
    """The newest binary of a cache that is of the wanted version; ``what`` is what messages call the program.

    Raises:
        CapabilityError: there is none.
    """
    fitting = [each for each in cache.binaries() if fits(each.version, wanted)]
    if not fitting:
        named = f"{cache.program.name}@{wanted}" if wanted else cache.program.name
        raise CapabilityError(f"{what} {wanted}".strip(), f"type `proxylab engines --obtain {named}`, once")
    return fitting[-1]


def upstream_for(
    engine: str,
    where: str,
    tell: Callable[[str], None],
    *,
    flags: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
    sources: Sources | None = None,
) -> Upstream | None:
    """The binary for an engine; ``None`` where the engine needs none.

    ``where`` is the user's value of ``--kube-proxy``, or empty; ``tell`` gets a line about each slow action.
    Raises ``CapabilityError``.
    """
    name = read_engine(engine)
    if not name.is_upstream:
        return None
    binary = obtain(name, where, sources or Sources.of_user(), tell)
    return Upstream(str(binary.path), binary.identity, tuple(flags), dict(gates or {}), where)


def read_gates(text: str) -> dict[str, bool]:
    """Read ``NAME=true,OTHER=false``, as in Kubernetes' own flag. Raises ``ValueError``."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.strip().partition("=")
        if not name or not sign or value.lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is not a feature gate; write NAME=true or NAME=false")
        gates[name] = value.lower() == "true"
    return gates
