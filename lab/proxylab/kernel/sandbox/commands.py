"""Which command a process stems from.

Owns: the mark that every command and all its children bear, and the finding of those that bear it.
Must not: import anything that a command's start does not need; the launcher child is forked with it.

A command may start children in process groups and sessions of their own, and may have ended itself when they are
looked for: then nothing in the process table ties them to it. What they do inherit is its environment, which
/proc/PID/environ shows as it was when they were started (proc(5)).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["MARK", "Command", "command_of", "family_of"]

MARK: Final = "PROXYLAB_COMMAND"
_LONGEST: Final = 1 << 16


class Command(NamedTuple):
    """What the mark says: the command's number, its place, the line of code that ran it, and its words."""

    number: int
    netns_name: str
    made_by: str
    argv: str

    def __str__(self) -> str:
        return f"{self.number} {self.netns_name} {self.made_by} {self.argv}"


def command_of(pid: int) -> Command | None:
    """The command that a process stems from; ``None`` for one that stems from none, or has ended."""
    head = MARK.encode() + b"="
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        try:
            environment = os.read(fd, _LONGEST)
        finally:
            os.close(fd)
    except OSError:
        return None
    for each in environment.split(b"\0"):
        if each.startswith(head):
            with suppress(ValueError):
                number, netns_name, made_by, argv = each[len(head) :].decode(errors="replace").split(" ", 3)
                return Command(int(number), netns_name, made_by, argv)
    return None


def family_of(number: int, pid: int) -> set[int]:
    """Every process of one command, started as ``pid``: those that bear its mark, and their children."""
    parents = dict(_parents())
    found = {each for each in parents if each == pid or _bears(each, number)}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _bears(pid: int, number: int) -> bool:
    command = command_of(pid)
    return command is not None and command.number == number


def _parents() -> Iterator[tuple[int, int]]:
    """Every process but the caller, init and zombies, with its parent; fields of stat are counted behind the name."""
    for name in (each.name for each in Path("/proc").iterdir()):
        if not name.isdigit() or int(name) in (1, os.getpid()):
            continue
        with suppress(OSError):
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                state, parent = os.read(fd, 4096).rpartition(b")")[2].split()[:2]
            finally:
                os.close(fd)
            if state != b"Z":
                yield int(name), int(parent)
