"""Large transactions of commands that do not ask for the room they need.

Owns: raising the send buffers of another process's netlink sockets before it gets its input.
Must not: import anything that a command's start does not need; the launcher child is forked with it.

nft and iptables-nft-restore send all that they were told in one netlink message, which must fit the socket's send
buffer. They ask for room by SO_SNDBUFFORCE, which needs CAP_NET_ADMIN over the machine, and go on without it when that
is refused: with the usual net.core.wmem_default of 208 KiB some hundred rules end in EMSGSIZE. SO_SNDBUF would have
been allowed up to net.core.wmem_max (sk_setsockopt, net/core/sock.c). So their input is held back until they have
opened their sockets, which both do first; these are borrowed (pidfd_getfd(2)) and get all the room that is allowed.
The message is never split: to packets, a set of rules comes as a whole or not at all.
"""

import os
import select
import socket
import time
from contextlib import suppress
from typing import Final

from proxylab.kernel.sandbox.linux import borrow_descriptor

__all__ = ["feed"]

_ALL: Final = 1 << 30
"""More than any limit; the kernel gives what is allowed, and twice that for its own book-keeping (socket(7))."""

_PATIENCE: Final = 5.0
_LOOK_MILLISECONDS: Final = 1


def feed(pid: int, text: int, pipe: int) -> None:
    """Write the file ``text`` into ``pipe``, the standard input of ``pid``, once that has room for what it makes of it.

    A process that opens no netlink socket in time is fed all the same.
    """
    deadline = time.monotonic() + _PATIENCE
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
    """How many netlink sockets of the process have now got their room."""
    raised = 0
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=borrow_descriptor(process, int(number))) as borrowed:
                if borrowed.family == socket.AF_NETLINK:
                    borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ALL)
                    raised += 1
    return raised
