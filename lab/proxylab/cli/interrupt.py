"""Ctrl-C while a stream lasts.

Owns: turning the first SIGINT or SIGTERM into a wish that the stream may end; the second is what it always is.
Must not: know what streams.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from proxylab.client.connection import Connection, LabGoneError
from proxylab.errors import InternalError
from proxylab.timing import Deadline

__all__ = ["ending_on_interrupt"]

_SECONDS = 5.0


@contextmanager
def ending_on_interrupt(connection: Connection) -> Iterator[None]:
    """End the stream on ``connection`` by its own answer when the user interrupts."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _: object) -> None:
        for each, action in before.items():
            signal.signal(each, action)
        try:
            connection.signal(number, Deadline.after(_SECONDS))
        except (LabGoneError, InternalError):
            raise KeyboardInterrupt from None

    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, action in before.items():
            signal.signal(each, action)
