"""The standard streams, which the caller may have closed, or connected to a file that takes no more output."""

import os
import sys
import traceback

import click

__all__ = ["flush", "is_of_output", "open_closed_streams"]


def open_closed_streams() -> bool:
    """Open /dev/null as each closed standard stream; return whether standard output was closed.

    Otherwise the next opened file would get the stream's number, and a command in a lab would print into that file.
    """
    was_closed = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(_redirect_to_null(0), closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(_redirect_to_null(1), "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(_redirect_to_null(2), "w", closefd=False, encoding="utf-8")
    return was_closed


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
    return isinstance(error, OSError) and frames[-1].f_code is click.echo.__code__


def _redirect_to_null(number: int) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    return number
