"""What a lab that was closed has left behind.

Owns: the count of descriptors and processes that still hold a namespace of a closed lab.
Must not: look at what the kernel does with a namespace that nobody holds; it takes it apart in its own time.

A namespace is known by its inode number, and everything that holds one leads to it: a descriptor of it, a socket made
in it (SIOCGSKNS, net/socket.c), a process in it. So what is left is found whoever made it, and named by the node, pod
or host that it was made in. As long as something is left, the number cannot pass to another namespace.
"""

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.kernel.netns import NetNs

__all__ = ["Departed", "end_processes", "leftovers", "note_departure"]

_SIOCGSKNS: Final = 0x894C  # include/uapi/linux/sockios.h


@dataclass(frozen=True, slots=True)
class Departed:
    """A lab that is being closed: the names of its namespaces by their inode numbers."""

    lab: str
    names: Mapping[int, str]


def note_departure(lab: str, namespaces: Mapping[str, NetNs]) -> Departed:
    """Remember the namespaces of a lab; to be called while they are still held."""
    return Departed(lab, {os.fstat(netns.fd).st_ino: name for name, netns in namespaces.items()})


def leftovers(departed: Departed) -> list[str]:
    """Everything in this process's reach that still holds a namespace of the lab, in words."""
    return [*_descriptors(departed), *(f"process {pid} ({what}) in {name}" for pid, what, name in _processes(departed))]


def end_processes(departed: Departed) -> None:
    """Kill what commands of the lab have left running. The sandbox's pid namespace holds no process but the lab's."""
    for pid, _, _ in _processes(departed):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descriptors(departed: Departed) -> Iterator[str]:
    for number in (int(each.name) for each in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the descriptor of the directory itself is closed by now
            target = str(Path(f"/proc/self/fd/{number}").readlink())
            if target.startswith("net:["):
                inode = os.fstat(number).st_ino
            elif target.startswith("socket:["):
                inode = _inode_of_socket(number)
            else:
                continue
            if inode in departed.names:
                yield f"descriptor {number} ({target}) in {departed.names[inode]}"


def _inode_of_socket(number: int) -> int:
    netns: int = fcntl.ioctl(number, _SIOCGSKNS, 0)
    try:
        return os.fstat(netns).st_ino
    finally:
        os.close(netns)


def _processes(departed: Departed) -> Iterator[tuple[int, str, str]]:
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # it has ended meanwhile
            inode = (process / "ns/net").stat().st_ino
            if inode in departed.names:
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                yield int(process.name), name, departed.names[inode]
