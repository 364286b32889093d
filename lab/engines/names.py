"""The names by which a user asks for an engine.

Owns: ``ENGINES``, for the command line and for pytest, which must not load an engine to know its name.
Must not: import anything. ``catalogue`` makes the engine of each name.
"""

from typing import Final

__all__ = ["ENGINES", "mode_of"]

ENGINES: Final = ("embedded/iptables",)
"""The first of them runs where nobody asks for one."""


def mode_of(engine: str) -> str:
    """The mode of an engine, as a scenario speaks of it: ``iptables`` for ``embedded/iptables``."""
    return engine.rpartition("/")[2]
