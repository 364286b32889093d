"""Children of tests that hear SIGINT and SIGHUP."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let children that begin inside hear SIGINT and SIGHUP.

    A shell makes background jobs ignore SIGINT, nohup(1) makes its command ignore SIGHUP, and their children inherit
    that. execve(2) gives a signal with a handler its default action.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
