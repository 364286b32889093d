"""The mount, UTS and pid namespaces of nodes, pods and hosts, in which the launcher child starts commands.

The first command of a node, pod or host makes them. A child of the launcher becomes process 1 of the new pid namespace,
mounts what commands find there (``kernel.sandbox.command_environment``) and then only waits: processes that lose their
parent become its children, and the kernel reaps them. Signals of a command reach the processes of its own node, pod or
host, and no other; ``kill -9 -1`` ends those. The end of process 1 ends them all.

A pid namespace belongs to the children that a process makes, not to the process itself. So the launcher names the
namespace for its next child, starts the command, and names its own again.

The launcher child is forked with this module: it imports nothing that the start of a command does not need.
"""

import errno
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from msgspec import Struct

from proxylab.kernel.sandbox.command_environment import furnish
from proxylab.kernel.sandbox.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    die_with_parent,
    setns,
    unshare,
)
from proxylab.kernel.sandbox.own_proc import mount_proc

_KINDS: Final = (("mnt", CLONE_NEWNS), ("uts", CLONE_NEWUTS), ("pid", CLONE_NEWPID))
_READY: Final = b"ready"
_WORDS_BYTES: Final = 4096
_STANDARD: Final = 2


class NamespaceOwner(Struct, frozen=True):
    """What the namespaces of a node, pod or host are made for: its name in the launcher, its hostname, resolv.conf."""

    netns_name: str
    hostname: str
    resolv_conf: str


class _Spaces(Struct, frozen=True):
    """Open descriptors of a mount, a UTS and a pid namespace, and process 1 of the last; 0 for the launcher's own."""

    descriptors: tuple[int, ...]
    init: int = 0

    @classmethod
    def of(cls, pid: int | str, init: int = 0) -> "_Spaces":
        """The namespaces of a process."""
        return cls(tuple(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind, _ in _KINDS), init)

    def enter(self) -> None:
        for descriptor, (_, flag) in zip(self.descriptors, _KINDS, strict=True):
            setns(descriptor, flag)


class CommandNamespaces:
    """Those of every node, pod and host that has had a command; enters them and returns."""

    def __init__(self) -> None:
        self._own = _Spaces.of("self")
        self._own_netns = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._known: dict[str, _Spaces] = {}

    @contextmanager
    def entered(self, owner: NamespaceOwner, netns: int) -> Iterator[None]:
        """Be in the namespaces of a command, and name its pid namespace for children. Raises ``OSError``."""
        known = self._known.get(owner.netns_name) or self._make(owner, netns)
        try:
            known.enter()
            setns(netns, CLONE_NEWNET)
            yield
        finally:
            try:
                setns(self._own_netns, CLONE_NEWNET)
                self._own.enter()
            except OSError:
                os._exit(1)  # the next command would run in the wrong namespaces; this exit ends the lab

    def forget(self, name: str) -> None:
        """End every process of a node, pod or host, and close its namespaces, if there are any."""
        spaces = self._known.pop(name, None)
        if spaces is not None:
            os.kill(spaces.init, signal.SIGKILL)  # not yet reaped, so the pid is still its own
            for descriptor in spaces.descriptors:
                os.close(descriptor)

    def notice_end(self, pid: int) -> None:
        """Forget the namespaces of which the reaped process was process 1: the next command makes new ones."""
        for name, spaces in self._known.items():
            if spaces.init == pid:
                for descriptor in spaces.descriptors:
                    os.close(descriptor)
                del self._known[name]
                return

    def _make(self, owner: NamespaceOwner, netns: int) -> _Spaces:
        """Make the namespaces of a node, pod or host. Raises ``OSError``."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            unshare(CLONE_NEWPID)
            try:
                init = os.fork()
                if init == 0:
                    _be_process_1(owner, netns, self._own_netns, writing)
            finally:
                setns(self._own.descriptors[-1], CLONE_NEWPID)
            os.close(writing)
            writing = -1
            said = os.read(reading, _WORDS_BYTES)
            if said != _READY:
                os.waitpid(init, 0)
                number, _, words = said.decode(errors="replace").partition(" ")
                raise OSError(int(number or errno.EIO), words or "process 1 of its namespaces ended")
            spaces = self._known[owner.netns_name] = _Spaces.of(init, init)
            return spaces
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)


def _be_process_1(owner: NamespaceOwner, netns: int, home: int, told: int) -> NoReturn:
    """Be process 1 of a node, pod or host: mount what commands find there, say so, and wait.

    It returns to the network namespace ``home``, since a lab that closes must find no process in a namespace of its
    own. It keeps no descriptor of the launcher: each holds something alive.
    """
    try:
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children of such a process (wait(2))
        unshare(CLONE_NEWNS | CLONE_NEWUTS)
        socket.sethostname(owner.hostname)
        setns(netns, CLONE_NEWNET)
        furnish(owner.resolv_conf)
        mount_proc()
        setns(home, CLONE_NEWNET)
        os.write(told, _READY)
        for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers, not paths
            if number > _STANDARD:
                with suppress(OSError):  # the descriptor of the directory itself is closed already
                    os.close(number)
        while True:
            signal.pause()
    except OSError as error:
        os.write(told, f"{error.errno} {error.strerror}".encode())
    finally:
        os._exit(1)
