"""A socket that listens on this machine's loopback, as ``listen_inside`` makes one in a node."""

import socket


def listen_here(backlog: int | None = None) -> socket.socket:
    """A socket on a free port, for an event loop."""
    made = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    made.setblocking(False)
    return made
