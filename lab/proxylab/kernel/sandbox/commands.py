"""Which command of the lab a process belongs to.

A command may start children in process groups and sessions of their own, and may have ended before the lab looks for
them: then nothing in the process table ties them to it. They do inherit its environment, which /proc/PID/environ shows
as it was at their start (proc(5)). So every command carries a mark in its environment, and this module finds processes
by that mark.

The launcher child is forked with this module: it imports nothing that the start of a command does not need.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "PROXYLAB_COMMAND"
_ENVIRONMENT_BYTES: Final = 1 << 16


class Command(NamedTuple):
    """The content of the mark: the command's number, its node, pod or host, the line of code that ran it, its argv."""

    number: int
    netns_name: str
    made_by: str
    argv: str

    def __str__(self) -> str:
        return f"{self.number} {self.netns_name} {self.made_by} {self.argv}"


def command_of(pid: int) -> Command | None:
    """The command that a process belongs to; ``None`` for a process of no command, or one that has ended."""
    head = MARK.encode() + b"="
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        try:
            environment = os.read(fd, _ENVIRONMENT_BYTES)
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
    """Every process of the command that started as ``pid``: those with its mark, and their children."""
    parent_of = dict(parents())
    found = {each for each in parent_of if each == pid or _has_mark(each, number)}
    while more := {child for child, parent in parent_of.items() if parent in found} - found:
        found |= more
    return found


def processes_of(number: int) -> set[int]:
    """Every process with the mark of that command."""
    return {each for each, _parent in parents() if _has_mark(each, number)}


def _has_mark(pid: int, number: int) -> bool:
    command = command_of(pid)
    return command is not None and command.number == number


def parents() -> Iterator[tuple[int, int]]:
    """Every process but the caller, init and zombies, with its parent. A name in stat may hold spaces and brackets."""
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
