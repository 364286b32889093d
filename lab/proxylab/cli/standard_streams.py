"""The standard streams: all text to them, of which others wrote a part.

The caller may have closed a stream, or connected it to a file that takes no more output.
"""

import io
import os
import re
import sys
import traceback
from typing import Final

import click

from proxylab.text import printable

_COLOUR: Final = re.compile(r"(\x1b\[(?:0|1|22|3[1-6])m)")
"""What ``click.style`` writes for the colours of a verdict (ECMA-48, SGR)."""


def echo(text: str, *, err: bool = False, nl: bool = True, color: bool | None = None) -> None:
    """Print text on standard output or error, as ``click.echo`` does; nothing in it reaches a terminal but our colours.

    All verbs print through this function: logs, files and names of others are in most of what they say.
    """
    parts = _COLOUR.split(text)
    parts[::2] = map(printable, parts[::2])
    click.echo("".join(parts), err=err, nl=nl, color=color)  # noqa: TID251 - here it is made safe


def open_closed_streams() -> bool:
    """Open /dev/null as each closed standard stream; return whether standard output was closed.

    Otherwise the next opened file would get the stream's number, and a command in a lab would print into that file.
    """
    was_closed = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(_redirect_to_null(0), closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(_redirect_to_null(1), "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(_redirect_to_null(2), "w", closefd=False, encoding="utf-8")
    return was_closed


def buffer_streams() -> None:
    """Give both output streams a buffer if they have none (``python -u``, PYTHONUNBUFFERED).

    Without one, Python writes a text by one write(2), and drops without a word what a full disk or a limit left of it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            encoding, errors = stream.encoding, stream.errors
            setattr(sys, name, os.fdopen(stream.fileno(), "w", closefd=False, encoding=encoding, errors=errors))


def flush() -> OSError | None:
    """Flush both output streams; return the error of standard output, if any.

    A stream that fails is redirected to /dev/null: otherwise the interpreter would fail again at exit.
    """
    failed: list[OSError | None] = []
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            _redirect_to_null(number)
            failed.append(error)
        else:
            failed.append(None)
    return failed[0]


def is_of_output(error: Exception) -> bool:
    """Whether ``click.echo`` raised the error: it writes to the standard streams only."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, OSError) and frames[-1].f_code is click.echo.__code__  # noqa: TID251


def _redirect_to_null(number: int) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    return number
