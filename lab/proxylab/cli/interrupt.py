"""Ctrl-C during a stream: the first SIGINT or SIGTERM asks the lab to end the stream; the second acts as usual."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from proxylab.client.connection import Connection
from proxylab.errors import InternalError
from proxylab.timing import Deadline

_SEND_SECONDS = 5.0


@contextmanager
def ending_on_interrupt(connection: Connection) -> Iterator[None]:
    """On an interrupt, ask the lab to end the stream on ``connection``, so that its last message still arrives."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _: object) -> None:
        for each, action in before.items():
            signal.signal(each, action)
        try:
            connection.signal(number, Deadline.after(_SEND_SECONDS))
        except InternalError:
            raise KeyboardInterrupt from None

    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, action in before.items():
            signal.signal(each, action)
