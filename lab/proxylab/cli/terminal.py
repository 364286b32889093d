"""The user's terminal: how wide text may be, and whether it is coloured.

The option ``--color`` overrides the environment variables NO_COLOR, FORCE_COLOR and TERM.
"""

import os
import shutil
from typing import Final, TextIO

import click

from proxylab.text import WIDTH

__all__ = ["COLOR", "terminal_width", "wants_color"]

COLOR: Final = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to colour; auto colours on terminals, unless NO_COLOR is set.",
)
OUTPUT: Final = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


def wants_color(stream: TextIO, choice: str) -> bool:
    """Whether to colour text on ``stream``.

    Args:
        stream: the output; a pipe or a file gets no colour unless FORCE_COLOR is set.
        choice: the value of ``--color``, which overrides the environment (no-color.org).
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


_WIDEST: Final = 160
"""Longer lines are hard to read, and do not make a table clearer."""


def terminal_width() -> int:
    """Columns for text, 80 at least: narrower terminals break its lines; without a terminal, 80 or COLUMNS."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), _WIDEST)
