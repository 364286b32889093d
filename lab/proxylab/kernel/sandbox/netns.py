"""Network namespaces as file descriptors.

Owns: making a namespace, entering it for a moment, and giving it back.
Must not: name namespaces in the file system, or let anything but sockets and files of /proc/sys be opened inside.

A network namespace is an attribute of a thread. ``inside`` moves the thread, runs a block and moves it back; so a
block may not await, yield or start another thread's work: the whole event loop would go on in the wrong namespace. A
socket belongs for good to the namespace it was made in, wherever its owner is later, so a block is short: it makes
sockets, or opens files below /proc/sys/net (resolved at open(2) by the caller's namespace), and nothing else.
``tests/unit/test_architecture.py`` walks the syntax tree of every block.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from proxylab.frozen import dataclass
from proxylab.kernel.sandbox.linux import CLONE_NEWNET, setns, unshare
from proxylab.kernel.sandbox.origins import here

__all__ = ["NetNs", "inside", "make_netns"]

# /proc/self is the main thread's; a namespace is the calling thread's (proc(5)).
_OWN = "/proc/thread-self/ns/net"


@dataclass(frozen=True, slots=True)
class NetNs:
    """A network namespace. It lives as long as ``fd`` is open, or as long as a process or socket is in it.

    ``made_by`` is the line of code that made it, for whoever finds that it was not closed.
    """

    name: str
    fd: int
    made_by: str = field(default="", compare=False)

    def close(self) -> None:
        """Let go of it. The kernel takes it apart later, in a worker of its own; nobody waits for that."""
        os.close(self.fd)


@contextmanager
def inside(netns: NetNs) -> Iterator[None]:
    """Run a block in ``netns``; the block may contain no await and no yield.

    Should the way back fail, the process ends at once: going on in a foreign namespace would be worse than any error.
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
    """A new, empty network namespace; the calling thread ends where it began."""
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
