"""Listening sockets inside a namespace, for servers of the lab."""

import socket

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["listen_inside"]

_BACKLOG = 128


def listen_inside(netns: NetNs, address: IPAddress, port: int) -> socket.socket:
    """A listening TCP socket. Raises ``OSError`` when the port is taken or the address is not the node's."""
    six = Family.of(address) is Family.IPV6
    with inside(netns):
        opened = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setblocking(False)
        opened.bind((str(address), port))
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened
