"""The names by which a user asks for an engine.

Owns: ``ENGINES`` and ``IPTABLES``, for the command line and for pytest, which must not load an engine to know its name.
Must not: import anything. ``catalogue`` makes the engine of each name.
"""

from typing import Final

__all__ = ["ENGINES", "IPTABLES", "mode_of", "version_of"]

ENGINES: Final = ("embedded/iptables", "embedded@v1.23/iptables", "embedded@v1.34/iptables")
"""The first of them runs where nobody asks for one.

Of ``embedded``, a version stands for those that behaved like it: ``v1.23`` for all before 1.24, with their KUBE-XLB-
chains; ``v1.34`` for 1.32 to 1.36, which forget UDP flows only of Services that still have an endpoint. Without a
version it is what 1.36 writes, and no UDP flow outlives its endpoint.
"""

IPTABLES: Final = ("legacy", "nft")
"""The variants of iptables. Where nobody asks for one, the first that works on this machine loads the rules."""


NEWEST: Final = (1, 36)
"""The version whose rules the embedded engine writes where no other is asked for."""


def version_of(engine: str) -> tuple[int, int]:
    """Major and minor of the version whose behaviour an engine has, by which exceptions hold or do not."""
    _, _, version = engine.partition("/")[0].partition("@v")
    major, _, minor = version.partition(".")
    return (int(major), int(minor.partition(".")[0])) if minor else NEWEST


def mode_of(engine: str) -> str:
    """The mode of an engine, as a scenario speaks of it: ``iptables`` for ``embedded/iptables``."""
    return engine.rpartition("/")[2]
