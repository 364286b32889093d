"""Accepting connections while the process or the machine may lack a descriptor or memory for one more.

accept(2) fails then and leaves the connection in the queue, so that the socket stays readable: a loop that waits for
readable sockets would turn without end. No event tells when there is room again, since other parts of the process close
theirs. So each accept loop of the lab rests for a moment, and the connection waits. asyncio's own server does not rest
in Python 3.11: it tries once more for each place in the queue, and logs a traceback each time.
"""

import asyncio
import errno
import select
import socket
from collections.abc import Callable
from typing import Final

REST_SECONDS: Final = 0.1
"""Between two attempts to accept a connection while there is no room."""

_OF_THE_SOCKET: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def has_no_room(error: OSError) -> bool:
    """Whether accept(2) failed because the process or the machine lacks something, and not the connection."""
    return error.errno in _NO_ROOM


async def accepted(listening: socket.socket, make_room: Callable[[], object] = lambda: None) -> socket.socket:
    """The next connection of a socket that does not block. Raises ``OSError`` where the socket itself is at fault.

    Where there is no room for a connection that waits, ``make_room`` may close another one.
    """
    waiting = select.poll()
    waiting.register(listening, select.POLLIN)
    while True:
        try:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
        except ConnectionError:  # the client has gone
            continue
        except OSError as error:
            if error.errno in _OF_THE_SOCKET:
                raise
            if has_no_room(error) and waiting.poll(0):  # accept(2) takes a descriptor before it looks for a client
                make_room()
            await asyncio.sleep(REST_SECONDS)  # an error of the network, too, which accept(2) passes on
            continue
        return connection
