"""The standard streams of the command, which its caller may have closed, or sent where nothing can be written.

Owns: a stand-in for those that are closed, and what it is when standard output takes nothing.
Must not: print.
"""

import os
import sys
import traceback

import click

__all__ = ["flush", "is_of_output", "open_closed_streams"]


def open_closed_streams() -> bool:
    """Open /dev/null as each standard stream that is closed; whether standard output was.

    Otherwise the next file that is opened would have its number, and a command in a lab would print into that.
    """
    was_closed = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(_lead_nowhere(0), closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(_lead_nowhere(1), "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(_lead_nowhere(2), "w", closefd=False, encoding="utf-8")
    return was_closed


def flush() -> OSError | None:
    """Write what is still held back; what keeps standard output from that.

    What cannot be written goes nowhere: the interpreter would fail at it once more when it ends.
    """
    failed: list[OSError | None] = []
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            _lead_nowhere(number)
            failed.append(error)
        else:
            failed.append(None)
    return failed[0]


def is_of_output(error: Exception) -> bool:
    """Whether printing met this error: no other file is written by ``click.echo``."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, OSError) and frames[-1].f_code is click.echo.__code__


def _lead_nowhere(number: int) -> int:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    return number
