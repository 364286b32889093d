"""Sessions that the tests of a worker share: the start of a lab process takes longer than most labs.

A session whose test fails is not used again. Tests that kill, stop or measure a lab process have one of their own.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice

__all__ = ["shared_session"]

MOST = 4
"""So many lab processes of a worker wait for a further test."""


@contextmanager
def shared_session(engine: EngineChoice | None = None) -> Iterator[Session]:
    """A session on an engine, as ``Session`` makes one: at the end it closes its lab, of which nothing may be left."""
    chosen = engine or EngineChoice()
    waiting = _waiting()
    session = next((each for each in waiting if each.engine == chosen), None) or Session(chosen)
    waiting[:] = [each for each in waiting if each is not session]
    try:
        yield session
        session.close_lab()
    except BaseException:
        session.close()
        raise
    waiting.append(session)
    for each in waiting[:-MOST]:
        waiting.remove(each)
        each.close(checked=True)


@cache
def _waiting() -> list[Session]:
    """The sessions that no test uses at the moment, the one used last at the end. They end with the worker."""
    sessions: list[Session] = []

    def end() -> None:
        for each in sessions:
            each.close()

    atexit.register(end)
    return sessions
