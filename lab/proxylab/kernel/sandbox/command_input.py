"""Input for commands whose netlink transaction is larger than the default send buffer.

nft and iptables-nft-restore send their whole input in one netlink message, which must fit the socket's send buffer.
They ask for room by SO_SNDBUFFORCE, which needs CAP_NET_ADMIN over the machine, and go on without it when the kernel
refuses: with the usual net.core.wmem_default of 208 KiB some hundred rules end in EMSGSIZE. SO_SNDBUF would give them
up to net.core.wmem_max (sk_setsockopt, net/core/sock.c). So ``feed`` holds the input back until the command has opened
its netlink sockets, which both commands do first, borrows them (pidfd_getfd(2)) and raises their buffers, without that
limit where it is the machine's root. Splitting the message is no way out: a packet must meet a set of rules as a whole
or not at all.

The launcher child is forked with this module: it imports nothing that the start of a command does not need.
"""

import errno
import os
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from proxylab.kernel.sandbox.linux import borrow_descriptor, die_with_parent

_BUFFER_BYTES: Final = 1 << 30
"""More than any limit. The kernel caps it, and doubles it for its own book-keeping (socket(7))."""

_SO_SNDBUFFORCE: Final = 32
_A_FEED: Final = 3
"""How many descriptors a feed has: of the process, of its text, and of its pipe."""

_SOCKET_SECONDS: Final = 5.0
_LOOK_MILLISECONDS: Final = 1


def feed(process: int, text: int, pipe: int) -> None:
    """Raise the buffers of a process's netlink sockets, then write the file ``text`` into ``pipe``, its standard input.

    ``process`` is a pidfd. A process that opens no netlink socket in time gets its input all the same.
    """
    deadline = time.monotonic() + _SOCKET_SECONDS
    clock = select.poll()
    clock.register(process, select.POLLIN)
    with suppress(OSError):  # it has ended
        while not _raise_send_buffers(process) and time.monotonic() < deadline:
            if clock.poll(_LOOK_MILLISECONDS):
                return
    size = os.fstat(text).st_size
    at = 0
    with suppress(BrokenPipeError):
        while at < size:
            at += os.sendfile(pipe, text, at, size - at)


def serve_feeds(asked: socket.socket) -> NoReturn:
    """Feed each process whose pidfd, text and pipe come, in a child, until the other end closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children of such a process (wait(2))
    while True:
        data, descriptors, _, _ = socket.recv_fds(asked, 1, _A_FEED)
        if not data:
            os._exit(0)
        if len(descriptors) == _A_FEED and os.fork() == 0:
            asked.close()
            die_with_parent()
            try:
                feed(*descriptors)
            finally:
                os._exit(0)
        for each in descriptors:
            os.close(each)


def _raise_send_buffers(process: int) -> int:
    """Raise the buffers of the process's netlink sockets, and return how many sockets that were."""
    raised = 0
    pid = _pid_of(process)
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=borrow_descriptor(process, int(number))) as borrowed:
                if borrowed.family == socket.AF_NETLINK:
                    try:
                        borrowed.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
                    except PermissionError:
                        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
                    raised += 1
    return raised


def _pid_of(process: int) -> int:
    """The pid of a pidfd in the caller's pid namespace (/proc/PID/fdinfo, pidfd_open(2))."""
    text = Path(f"/proc/self/fdinfo/{process}").read_text(encoding="ascii")
    (pid,) = (int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))
    if pid < 1:
        raise ProcessLookupError(errno.ESRCH, "the process has ended")
    return pid
