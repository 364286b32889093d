"""Network namespaces as file descriptors.

A network namespace is an attribute of a thread. ``inside`` moves the thread, runs a block and moves it back. A block
must not await, yield or start another thread's work: the whole event loop would go on in the wrong namespace. A socket
belongs for good to the namespace that it was made in. So a block is short: it makes sockets, or opens files below
/proc/sys/net (open(2) resolves them by the caller's namespace), and nothing else. ``tests/lint/test_architecture.py``
walks the syntax tree of every block. Namespaces have no names in the file system.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxylab.kernel.sandbox.linux import CLONE_NEWNET, setns, unshare
from proxylab.kernel.sandbox.origins import here

# /proc/self is the main thread's, and a namespace belongs to the calling thread (proc(5)).
_OWN = "/proc/thread-self/ns/net"


@dataclass(frozen=True, slots=True)
class NetNs:
    """A network namespace. It lives as long as ``fd`` is open, or as long as a process or socket is in it.

    ``made_by`` is the line of code that made it, for the report on a namespace that was not closed.
    """

    name: str
    fd: int
    made_by: str = field(default="", compare=False)

    def close(self) -> None:
        """Close the descriptor. The kernel takes the namespace apart later, in a worker of its own."""
        os.close(self.fd)


@contextmanager
def inside(netns: NetNs) -> Iterator[None]:
    """Run a block in ``netns``; the block may contain no await and no yield.

    If the way back fails, the process ends at once: work in a foreign namespace is worse than any error.
    """
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(netns.fd, CLONE_NEWNET)
        try:
            yield
        finally:
            _return_or_die(home)
    finally:
        os.close(home)


def make_netns(name: str) -> NetNs:
    """A new, empty network namespace. The calling thread returns to its own."""
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNET)
        try:
            return NetNs(name, os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC), here())
        finally:
            _return_or_die(home)
    finally:
        os.close(home)


def _return_or_die(home: int) -> None:
    try:
        setns(home, CLONE_NEWNET)
    except OSError as error:
        os.write(2, f"proxylab: cannot leave a network namespace: {error}\n".encode())
        os._exit(70)
