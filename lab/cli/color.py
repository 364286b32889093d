"""Whether to colour.

Owns: the conventions by which a user says so: NO_COLOR (no-color.org), FORCE_COLOR, TERM.
Must not: colour anything.
"""

import os
from typing import TextIO

__all__ = ["wants_color"]


def wants_color(stream: TextIO, *, forbidden: bool) -> bool:
    """Whether what goes to ``stream`` shall be coloured.

    Args:
        stream: where the text goes; a pipe or a file is not coloured unless FORCE_COLOR is set.
        forbidden: the user's word on the command line, which comes before the environment's.
    """
    if forbidden or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
