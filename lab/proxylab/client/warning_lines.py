"""Where the warnings of a client go, such as the line that says which process keeps it waiting.

A connection logs them: it serves the command line and pytest alike, and knows neither. In pytest they are part of a
test's log. On the command line they go to standard error, above the progress of a run; from a worker, to its client.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("proxylab")


class _Lines(logging.Handler):
    """Passes on each warning as a line of text."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


@contextmanager
def warnings_to(say: Callable[[str], object]) -> Iterator[None]:
    """In the block, ``say`` receives each warning at once, and the receiver of an enclosing block receives none."""
    before = _LOGGER.handlers[:]
    _LOGGER.handlers[:] = [_Lines(say)]
    try:
        yield
    finally:
        _LOGGER.handlers[:] = before
