"""What this process holds, counted before its first lab and after its last.

Owns: the count of descriptors, threads and processes, and the words for what is too much.
Must not: wait, or end anything.

``leftovers`` finds what holds a namespace of a lab. This count finds the rest: files, pipes, sockets of the lab
process's own namespace, threads that never end, and commands that have left their namespaces.
"""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from proxylab.frozen import dataclass
from proxylab.kernel.sandbox.leftovers import told_of
from proxylab.kernel.sandbox.origins import Origins, whereabouts

__all__ = ["Census"]


@dataclass(frozen=True, slots=True)
class Census:
    """What there was at one moment."""

    descriptors: dict[int, str]
    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @classmethod
    def take(cls) -> Self:
        """Count now."""
        return cls(_descriptors(), frozenset(threading.enumerate()), frozenset(_processes()))

    def since(self, origins: Origins) -> list[str]:
        """What there is now that was not there then, each with the line of code that it stems from, if known."""
        now = Census.take()
        found = []
        for number, target in now.descriptors.items():
            if self.descriptors.get(number) != target:
                maker = origins.of_descriptor(number, target)
                found.append(f"descriptor {number} ({target}){maker and f', made by {maker}'}")
        found += [
            f"thread {thread.name!r}, at {whereabouts(thread)}"
            for thread in now.threads - self.threads
            if thread.is_alive()
        ]
        return found + [f"process {told_of(pid)}" for pid in sorted(now.processes - self.processes)]


def _descriptors() -> dict[int, str]:
    found = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the directory itself is closed by now
            found[int(each.name)] = str(each.readlink())
    return found


def _processes() -> set[int]:
    """Everybody in the sandbox who has not ended; a zombie waits for its parent, and holds nothing."""
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            state = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            if state != "Z":
                found.add(int(process.name))
    return found
