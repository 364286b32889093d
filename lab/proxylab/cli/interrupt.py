"""Ctrl-C while a stream lasts.

Owns: turning the first SIGINT or SIGTERM into a wish that the stream may end; the second is what it always is.
Must not: know what streams.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from proxylab.errors import InternalError
from proxylab.client.connection import LabGoneError, Line
from proxylab.timing import Deadline

__all__ = ["ending_on_interrupt"]

_SECONDS = 5.0


@contextmanager
def ending_on_interrupt(line: Line) -> Iterator[None]:
    """End the stream on ``line`` by its own answer when the user interrupts."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _: object) -> None:
        for each, action in before.items():
            signal.signal(each, action)
        try:
            line.signal(number, Deadline.after(_SECONDS))
        except (LabGoneError, InternalError):
            raise KeyboardInterrupt from None

    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, action in before.items():
            signal.signal(each, action)
