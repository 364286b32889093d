"""The user's terminal: how wide text may be, and whether it is coloured.

The option ``--color`` overrides the environment variables NO_COLOR, FORCE_COLOR and TERM. A judgement, and each kind of
change of a standing lab, has one colour in all verbs.
"""

import os
import shutil
from collections.abc import Iterable
from typing import Annotated, Final, TextIO

import click

from proxylab.cli.options import option
from proxylab.text import WIDTH
from proxylab.verdict.model import Judgement

_OF_JUDGEMENTS: Final = {
    Judgement.PASS: "green",
    Judgement.FAIL: "red",
    Judgement.INCONCLUSIVE: "yellow",
    Judgement.SKIP: "cyan",
}
_OF_CHANGES: Final = {"+": "green", "-": "red", "~": "yellow"}
_WIDEST: Final = 160
"""Longer lines are hard to read, and do not make a table clearer."""

Color = Annotated[
    str,
    option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="When to colour; auto colours on terminals, unless NO_COLOR is set.",
    ),
]
Output = Annotated[
    str, option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
]

Verbose = Annotated[bool, option("-v", "--verbose", is_flag=True, help="List every probe with what the lab observed.")]


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


def paint(word: str, judgement: Judgement) -> str:
    """A word in the colour of its judgement."""
    return click.style(word, fg=_OF_JUDGEMENTS[judgement], bold=judgement is not Judgement.PASS)


def changes_in_colour(changes: Iterable[str]) -> list[str]:
    """The changes of a standing lab, coloured by kind; or a line that there are none."""
    lines = [click.style(each, fg=_OF_CHANGES[each[0]]) for each in changes]
    return lines or ["the lab already matches the file"]


def terminal_width() -> int:
    """Columns for text, 80 at least: narrower terminals break its lines; without a terminal, 80 or COLUMNS."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), _WIDEST)
