"""Whether to colour.

Owns: the option ``--color``, and the conventions by which a user says so otherwise: NO_COLOR, FORCE_COLOR, TERM.
Must not: colour anything.
"""

import os
from typing import Final, TextIO

import click

__all__ = ["COLOR", "wants_color"]

COLOR: Final = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="By default colours go to terminals only, and nowhere where NO_COLOR is set.",
)


def wants_color(stream: TextIO, choice: str) -> bool:
    """Whether what goes to ``stream`` shall be coloured.

    Args:
        stream: where the text goes; by default a pipe or a file is not coloured unless FORCE_COLOR is set.
        choice: the user's word on the command line, which comes before the environment's (no-color.org).
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
