"""The largest receive buffer that the kernel grants a socket."""

import socket
from typing import Final

_SO_RCVBUFFORCE: Final = 33  # include/uapi/asm-generic/socket.h


def raise_receive_buffer(sock: socket.socket, wanted: int) -> int:
    """Request a receive buffer of ``wanted`` bytes; return the granted size. Both are in bytes of ``truesize``.

    SO_RCVBUFFORCE needs CAP_NET_ADMIN over the machine; without it the kernel caps the size at
    net.core.rmem_max, which only the machine's own namespace can raise. The kernel doubles the requested size
    (socket(7)).
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, wanted // 2)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted // 2)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
