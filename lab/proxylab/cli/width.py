"""The width of the user's terminal, between the limits within which proxylab lays out lines."""

import shutil
from typing import Final

from proxylab.text import WIDTH

__all__ = ["terminal_width"]

_WIDEST: Final = 160
"""Longer lines are hard to read, and do not make a table clearer."""


def terminal_width() -> int:
    """Columns for text, 80 at least: narrower terminals break its lines; without a terminal, 80 or COLUMNS."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), _WIDEST)
