"""What a lab that was closed has left behind.

Owns: the count of descriptors and processes that still hold a namespace of a closed lab, and of its commands.
Must not: look at what the kernel does with a namespace that nobody holds (``kernel.cleanup`` does).

A namespace is known by its inode number, and everything that holds one leads to it: a descriptor of it, a socket made
in it (SIOCGSKNS, net/socket.c), a process in it. So what is left is found whoever made it, and named by the node, pod
or host that it was made in. As long as something is left, the number cannot pass to another namespace. A command may
have left its namespace, its process group and its session; by its environment it is still known.
"""

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.frozen import dataclass
from proxylab.kernel.sandbox.commands import command_of
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.origins import Origins

__all__ = ["Departed", "end_processes", "leftovers", "note_departure", "told_of"]

_SIOCGSKNS: Final = 0x894C  # include/uapi/linux/sockios.h


@dataclass(frozen=True, slots=True)
class Departed:
    """A lab that is being closed: its namespaces by their inode numbers, and what its commands' places begin with."""

    lab: str
    spaces: Mapping[int, NetNs]
    prefix: str = ""


def note_departure(lab: str, namespaces: Mapping[str, NetNs], prefix: str = "") -> Departed:
    """Remember the namespaces of a lab; to be called while they are still held."""
    return Departed(lab, {os.fstat(netns.fd).st_ino: netns for netns in namespaces.values()}, prefix)


def leftovers(departed: Departed, origins: Origins | None = None) -> list[str]:
    """Everything in this process's reach that still holds a namespace of the lab, in words."""
    held = _descriptors(departed, origins or Origins())
    return [*held, *(f"process {told_of(pid)} in {netns_name}" for pid, netns_name in _processes(departed))]


def end_processes(departed: Departed) -> None:
    """Kill what commands of the lab have left running. The sandbox's pid namespace holds no process but the lab's."""
    for pid, _ in _processes(departed):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def told_of(pid: int) -> str:
    """A process in words: its number and name, and the command that it stems from with the line that ran it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = "gone"
    command = command_of(pid)
    return f"{pid} ({name})" + (f", of {command.argv!r} run by {command.made_by}" if command else "")


def _descriptors(departed: Departed, origins: Origins) -> Iterator[str]:
    for number in (int(each.name) for each in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the descriptor of the directory itself is closed by now
            target = str(Path(f"/proc/self/fd/{number}").readlink())
            if target.startswith("net:["):
                netns = departed.spaces.get(os.fstat(number).st_ino)
                maker = "" if netns is None else netns.made_by
            elif target.startswith("socket:["):
                netns = departed.spaces.get(_inode_of_socket(number))
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


def _processes(departed: Departed) -> Iterator[tuple[int, str]]:
    """Processes in the lab's namespaces, and those of its commands wherever they are, each with its place."""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # it has ended meanwhile
            netns = departed.spaces.get((process / "ns/net").stat().st_ino)
            if netns is not None:
                yield int(process.name), netns.name
                continue
        command = command_of(int(process.name))
        if command is not None and departed.prefix and command.netns_name.startswith(departed.prefix):
            yield int(process.name), command.netns_name.removeprefix(departed.prefix)
