"""Input for commands whose netlink transaction is larger than the default send buffer.

nft and iptables-nft-restore send their whole input in one netlink message, which must fit the socket's send buffer.
They ask for room by SO_SNDBUFFORCE, which needs CAP_NET_ADMIN over the machine, and go on without it when the kernel
refuses: with the usual net.core.wmem_default of 208 KiB some hundred rules end in EMSGSIZE. SO_SNDBUF would give them
up to net.core.wmem_max (sk_setsockopt, net/core/sock.c). So ``feed`` holds the input back until the command has opened
its netlink sockets, which both commands do first, borrows them (pidfd_getfd(2)) and raises their buffers. Splitting the
message is no way out: a packet must meet a set of rules as a whole or not at all.

The launcher child is forked with this module: it imports nothing that the start of a command does not need.
"""

import os
import select
import socket
import time
from contextlib import suppress
from typing import Final

from proxylab.kernel.sandbox.linux import borrow_descriptor

_BUFFER_BYTES: Final = 1 << 30
"""More than any limit. The kernel caps it, and doubles it for its own book-keeping (socket(7))."""

_SOCKET_SECONDS: Final = 5.0
_LOOK_MILLISECONDS: Final = 1


def feed(pid: int, text: int, pipe: int) -> None:
    """Raise the buffers of a process's netlink sockets, then write the file ``text`` into ``pipe``, its standard input.

    A process that opens no netlink socket in time gets its input all the same.
    """
    deadline = time.monotonic() + _SOCKET_SECONDS
    clock = select.poll()
    with suppress(OSError):  # it has ended
        process = os.pidfd_open(pid)
        clock.register(process, select.POLLIN)
        while not _raise_send_buffers(pid, process) and time.monotonic() < deadline:
            if clock.poll(_LOOK_MILLISECONDS):
                return
    size = os.fstat(text).st_size
    at = 0
    with suppress(BrokenPipeError):
        while at < size:
            at += os.sendfile(pipe, text, at, size - at)


def _raise_send_buffers(pid: int, process: int) -> int:
    """Raise the buffers of the process's netlink sockets, and return how many sockets that were."""
    raised = 0
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=borrow_descriptor(process, int(number))) as borrowed:
                if borrowed.family == socket.AF_NETLINK:
                    borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
                    raised += 1
    return raised
