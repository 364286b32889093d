"""The names by which a user asks for an engine.

Owns: ``ENGINES`` and ``IPTABLES``, for the command line and for pytest, which must not load an engine to know its name.
Must not: import anything. ``catalogue`` makes the engine of each name.
"""

from typing import Final

__all__ = ["ENGINES", "IPTABLES", "mode_of"]

ENGINES: Final = ("embedded/iptables",)
"""The first of them runs where nobody asks for one."""

IPTABLES: Final = ("legacy", "nft")
"""The variants of iptables. Where nobody asks for one, the first that works on this machine loads the rules."""


def mode_of(engine: str) -> str:
    """The mode of an engine, as a scenario speaks of it: ``iptables`` for ``embedded/iptables``."""
    return engine.rpartition("/")[2]
