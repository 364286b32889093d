"""What a closed lab has left behind, and what the lab process holds when all labs are closed.

``leftovers`` finds the descriptors and processes that still hold a namespace of one closed lab. ``HeldResources`` has
all descriptors, threads and processes before the first lab and after the last: it finds files, pipes, sockets of the
lab process's own namespace, threads that never end, and commands that have left their namespaces. What the kernel does
with a namespace that no process holds is the matter of ``kernel.netlink.cleanup``.

A namespace is known by its inode number, and everything that holds one leads to it: a descriptor of it, a socket made
in it (SIOCGSKNS, net/socket.c), a process in it. So each leftover is found without knowing its maker, and is named by
the node, pod or host of its namespace. As long as something is left, the kernel does not reuse the inode number. A
command may have left its namespace, its process group and its session; its environment still names it.
"""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from proxylab.kernel.sandbox.commands import command_of, parents
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.origins import Origins, current_line

_SIOCGSKNS: Final = 0x894C  # include/uapi/linux/sockios.h


class ClosedLab(Struct, frozen=True):
    """A lab that is closing: its namespaces by inode number, and the prefix of its names for the launcher."""

    lab: str
    spaces: Mapping[int, NetNs]
    prefix: str = ""


def remember_namespaces(lab: str, namespaces: Mapping[str, NetNs], prefix: str = "") -> ClosedLab:
    """Remember the namespaces of a lab. The caller must still hold them."""
    return ClosedLab(lab, {os.fstat(netns.fd).st_ino: netns for netns in namespaces.values()}, prefix)


def leftovers(closed: ClosedLab, origins: Origins | None = None) -> list[str]:
    """Each descriptor and process that still holds a namespace of the lab, in words."""
    held = _descriptors(closed, origins or Origins())
    return [*held, *(f"process {_process_words(pid)} in {netns_name}" for pid, netns_name in _processes(closed))]


def end_processes(closed: ClosedLab) -> None:
    """Kill the processes that commands of the lab have left. All processes of the sandbox belong to the lab.

    The launcher is in a namespace of the lab while it starts a command there, such as one of a build that has just
    failed. It is a child of this process, and no command is.
    """
    own = {pid for pid, parent in parents() if parent == os.getpid()}
    for pid, _ in _processes(closed):
        if pid not in own:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _process_words(pid: int) -> str:
    """A process in words: its pid and name, and its command with the line of code that ran it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = "gone"
    command = command_of(pid)
    return f"{pid} ({name})" + (f", of {command.argv!r} run by {command.made_by}" if command else "")


def _descriptors(closed: ClosedLab, origins: Origins) -> Iterator[str]:
    for number in (int(each.name) for each in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the descriptor of the directory itself is closed already
            target = str(Path(f"/proc/self/fd/{number}").readlink())
            if target.startswith("net:["):
                netns = closed.spaces.get(os.fstat(number).st_ino)
                maker = "" if netns is None else netns.made_by
            elif target.startswith("socket:["):
                netns = closed.spaces.get(_inode_of_socket(number))
                maker = origins.of_descriptor(number, target)
            else:
                continue
            if netns is not None:
                yield f"descriptor {number} ({target}){maker and f', made by {maker},'} in {netns.name}"


def _inode_of_socket(number: int) -> int:
    netns: int = fcntl.ioctl(number, _SIOCGSKNS, 0)
    try:
        return os.fstat(netns).st_ino
    finally:
        os.close(netns)


def _processes(closed: ClosedLab) -> Iterator[tuple[int, str]]:
    """Processes in the lab's namespaces, and those of its commands anywhere, each with its node, pod or host."""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # it has ended meanwhile
            netns = closed.spaces.get((process / "ns/net").stat().st_ino)
            if netns is not None:
                yield int(process.name), netns.name
                continue
        command = command_of(int(process.name))
        if command is not None and closed.prefix and command.netns_name.startswith(closed.prefix):
            yield int(process.name), command.netns_name.removeprefix(closed.prefix)


class HeldResources(Struct, frozen=True):
    """The descriptors, threads and processes at one moment."""

    descriptors: dict[int, str]
    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @classmethod
    def take(cls) -> Self:
        """Count now."""
        return cls(_own_descriptors(), frozenset(threading.enumerate()), frozenset(_live_processes()))

    def since(self, origins: Origins) -> list[str]:
        """What is new since then, each with the line of code that made it, if known."""
        now = HeldResources.take()
        found = []
        for number, target in now.descriptors.items():
            if self.descriptors.get(number) != target:
                maker = origins.of_descriptor(number, target)
                found.append(f"descriptor {number} ({target}){maker and f', made by {maker}'}")
        found += [
            f"thread {thread.name!r}, at {current_line(thread)}"
            for thread in now.threads - self.threads
            if thread.is_alive()
        ]
        return found + [f"process {_process_words(pid)}" for pid in sorted(now.processes - self.processes)]


def _own_descriptors() -> dict[int, str]:
    found = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the directory itself is closed already
            found[int(each.name)] = str(each.readlink())
    return found


def _live_processes() -> set[int]:
    """Every process of the sandbox but zombies, which hold nothing."""
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            state = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            if state != "Z":
                found.add(int(process.name))
    return found
