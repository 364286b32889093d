"""The names by which a user asks for an engine.

Owns: ``EngineName`` and the names there are, for the command line and for pytest, which must not load an engine to know
its name.
Must not: import an engine. ``catalogue`` makes the engine of each name.

A name is ``WHOSE/MODE`` or ``WHOSE@VERSION/MODE``: ``embedded/iptables``, ``kube-proxy@v1.34.2/nftables``. Of
kube-proxy a version may leave its patch out (``kube-proxy@v1.34/iptables``); the newest that can be had is meant then.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from proxylab.frozen import dataclass

__all__ = [
    "ABOUT",
    "EMBEDDED",
    "ENGINES",
    "IPTABLES",
    "KUBE_PROXY",
    "NFT_TABLE",
    "EngineName",
    "mode_of",
    "read_engine",
    "version_of",
    "where_of",
]

KUBE_PROXY: Final = "kube-proxy"

ENGINES: Final = (
    "embedded/iptables",
    "embedded@v1.23/iptables",
    "embedded@v1.34/iptables",
    "kube-proxy/iptables",
    "kube-proxy/nftables",
)
"""The first of them runs where nobody asks for one. Those of kube-proxy may have any version in addition."""

ABOUT: Final[Mapping[str, str]] = {
    "embedded/iptables": "Writes the rules of 1.36 and 1.37. No UDP flow outlives its endpoint.",
    "embedded@v1.23/iptables": "Writes the rules of the versions before 1.24, with their KUBE-XLB- chains.",
    "embedded@v1.34/iptables": "As 1.32 to 1.36: forgets UDP flows only of Services that still have an endpoint.",
    "kube-proxy/iptables": "Upstream's binary in mode iptables.",
    "kube-proxy/nftables": "Upstream's binary in mode nftables.",
}
"""What each of them is. Of ``embedded``, a version stands for those that behaved like it: without one
it writes what 1.36 and 1.37 write, without the bugs that they still have."""

EMBEDDED: Final = tuple(name for name in ENGINES if name.startswith("embedded"))
"""Those whose rules can be written down without running anything."""

NFT_TABLE: Final = "kube-proxy"
"""The table of mode nftables, in each family."""

IPTABLES: Final = ("legacy", "nft")
"""The variants of iptables. Where nobody asks for one, the first that works on this machine loads the rules."""

_NAME: Final = re.compile(r"(?P<whose>[a-z-]+)(?:@(?P<version>[^/@]+))?/(?P<mode>[a-z]+)")
_NUMBERS: Final = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
_VERSION: Final = re.compile(r"v1\.[1-9][0-9](?:\.[0-9]+)?(?:-[0-9A-Za-z.-]+)?")


@dataclass(frozen=True, slots=True)
class EngineName:
    """A name, taken apart. ``version`` is empty where none is asked for."""

    whose: str
    version: str
    mode: str

    def __str__(self) -> str:
        return f"{self.whose}{self.version and '@'}{self.version}/{self.mode}"

    @property
    def is_upstream(self) -> bool:
        """Whether it is the real kube-proxy, whose binary must be had from somewhere."""
        return self.whose == KUBE_PROXY


def read_engine(text: str) -> EngineName:
    """Take a name apart.

    Raises:
        ValueError: there is no such engine; says what there is.
    """
    parts = _NAME.fullmatch(text)
    if parts is not None:
        name = EngineName(parts["whose"], parts["version"] or "", parts["mode"])
        without_version = str(EngineName(name.whose, "", name.mode))
        if text in ENGINES or (name.is_upstream and without_version in ENGINES and _VERSION.fullmatch(name.version)):
            return name
        if name.is_upstream and without_version in ENGINES:
            raise ValueError(f"{name.version!r} is no version of kube-proxy; write it as v1.34 or v1.34.2")
    close = get_close_matches(text, ENGINES, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    raise ValueError(f"there is no engine {text!r}{meant} There are {', '.join(ENGINES)}, and kube-proxy@VERSION/MODE")


NEWEST: Final = (1, 38)
"""The version whose behaviour the embedded engine has where no other is asked for."""


def version_of(engine: str, found: str = "") -> tuple[int, ...]:
    """The version whose behaviour an engine has, by which exceptions hold or do not (``proxylab.scenario.versions``).

    Args:
        engine: its name.
        found: what the binary that runs says of itself; a name may leave the version open, or its patch.
    """
    _, _, named = engine.partition("/")[0].partition("@v")
    numbers = _NUMBERS.match(found.removeprefix("v") or named)
    if numbers is None:
        return NEWEST
    major, minor, patch = (int(each or 0) for each in numbers.groups())
    return (major, minor, *((patch,) if patch else ()))


def where_of(engine: str, engines: Iterable[str], where: str) -> str:
    """What ``--kube-proxy`` says of one of several engines.

    It is meant for those that leave the version open, if there are any: so somebody's own build is compared with a
    version that is asked for by its name.
    """
    upstream = [read_engine(each) for each in engines]
    is_open = any(each.is_upstream and not each.version for each in upstream)
    return "" if is_open and read_engine(engine).version else where


def mode_of(engine: str) -> str:
    """The mode of an engine, as a scenario speaks of it: ``iptables`` for ``embedded/iptables``."""
    return engine.rpartition("/")[2]
