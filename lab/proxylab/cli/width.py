"""How wide the user's terminal is.

Owns: between what widths lines are laid out.
Must not: lay out anything.
"""

import shutil
from typing import Final

from proxylab.text import WIDTH

__all__ = ["terminal_width"]

_WIDEST: Final = 160
"""Longer lines are not read with ease, and a table grows no clearer by them."""


def terminal_width() -> int:
    """Columns for text, 80 at least: narrower terminals break its lines; without a terminal, 80 or COLUMNS."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), _WIDEST)
