"""The names of engines.

The command line and pytest need names without loading engines, so this module imports none; ``catalogue`` makes the
engine of each name.

A name is ``PROXY/MODE`` or ``PROXY@VERSION/MODE``: ``embedded/iptables``, ``kube-proxy@v1.34.2/nftables``. A version of
kube-proxy may lack its patch (``kube-proxy@v1.34/iptables``); it then means the newest patch that can be obtained.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from proxylab.cluster.configuration import Mode

__all__ = [
    "AS_NEWEST",
    "EMBEDDED",
    "ENGINES",
    "IPTABLES_VARIANTS",
    "KUBE_PROXY",
    "EngineName",
    "mode_of",
    "read_engine",
    "version_of",
    "where_of",
]

KUBE_PROXY: Final = "kube-proxy"

_OLDER: Final = ("embedded@v1.23/iptables", "embedded@v1.34/iptables")
"""A version of ``embedded`` stands for all versions that behaved like it. Without a version, ``embedded`` writes what
1.36 and 1.37 write, without the bugs that they still have."""

AS_NEWEST: Final = ("v1.36", "v1.37")
"""The minors that ``embedded`` without a version stands for, where a scenario names a version and no proxy."""

ENGINES: Final = (*(f"embedded/{mode}" for mode in Mode), *_OLDER, *(f"{KUBE_PROXY}/{mode}" for mode in Mode))
"""The first one is the default. Names of kube-proxy may carry any version in addition."""

EMBEDDED: Final = tuple(name for name in ENGINES if name.startswith("embedded"))
"""Engines whose rules can be printed without running anything."""

IPTABLES_VARIANTS: Final = ("legacy", "nft")
"""The variants of iptables. By default the first that works on this machine loads the rules."""

_NAME: Final = re.compile(r"(?P<proxy>[a-z-]+)(?:@(?P<version>[^/@]+))?/(?P<mode>[a-z]+)")
_NUMBERS: Final = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
_VERSION: Final = re.compile(r"v1\.[1-9][0-9](?:\.[0-9]+)?(?:-[0-9A-Za-z.-]+)?")


class EngineName(Struct, frozen=True):
    """The parts of a name. ``version`` is empty where the name has none."""

    proxy: str
    version: str
    mode: str

    def __str__(self) -> str:
        return f"{self.proxy}{self.version and '@'}{self.version}/{self.mode}"

    @property
    def is_upstream(self) -> bool:
        """Whether it is the real kube-proxy, which needs a binary."""
        return self.proxy == KUBE_PROXY


def read_engine(text: str) -> EngineName:
    """Read the name of an engine.

    Raises:
        ValueError: there is no such engine. The message lists those that exist.
    """
    parts = _NAME.fullmatch(text)
    if parts is not None:
        name = EngineName(parts["proxy"], parts["version"] or "", parts["mode"])
        without_version = str(EngineName(name.proxy, "", name.mode))
        if text in ENGINES or (name.is_upstream and without_version in ENGINES and _VERSION.fullmatch(name.version)):
            return name
        if name.is_upstream and without_version in ENGINES:
            raise ValueError(f"{name.version!r} is not a version of kube-proxy; write it as v1.34 or v1.34.2")
    close = get_close_matches(text, ENGINES, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    raise ValueError(f"there is no engine {text!r}{meant} There are {', '.join(ENGINES)}, and kube-proxy@VERSION/MODE")


NEWEST: Final = (1, 38)
"""The version of the embedded engine's behaviour where its name has none.

1.38 is not released. The embedded engine writes the rules of 1.37 without that version's known bugs, which is what
1.38 will do as far as upstream has mended them; so an ``except`` that ends before 1.38 does not concern it.
"""


def version_of(engine: str, found: str = "") -> tuple[int, ...]:
    """The version that an engine behaves like; exceptions go by it (``proxylab.scenario.versions``).

    ``found`` is what the running binary prints; a name may lack the version or its patch.
    """
    _, _, named = engine.partition("/")[0].partition("@v")
    numbers = _NUMBERS.match(found.removeprefix("v") or named)
    if numbers is None:
        return Mode(mode_of(engine)).facts.last_minor or NEWEST
    major, minor, patch = (int(each or 0) for each in numbers.groups())
    return (major, minor, *((patch,) if patch else ()))


def where_of(engine: str, engines: Iterable[str], where: str) -> str:
    """The value of ``--kube-proxy`` for one of several engines.

    It applies to names without a version, if there are any: so a user compares a local build with a named version.
    """
    upstream = [read_engine(each) for each in engines]
    is_open = any(each.is_upstream and not each.version for each in upstream)
    return "" if is_open and read_engine(engine).version else where


def mode_of(engine: str) -> str:
    """The mode of an engine, as scenarios name it: ``iptables`` for ``embedded/iptables``."""
    return engine.rpartition("/")[2]
