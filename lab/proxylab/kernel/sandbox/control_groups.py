"""The control group for commands in labs of the machine's root: it bounds their processes and their memory together.

All labs of root share one group, ``proxylab``. So what they can take has a bound however many there are, and the
machine keeps the rest. In version 1 the group lies below that of the lab process. In version 2 a group that hands a
controller on may have no processes of its own, but for the topmost (cgroups(7)). So there the group lies below the
nearest one on the way up that hands both controllers on. Either way, what bounds the user bounds the lab.

A lab turns no controller on: that would change the machine. Where nothing hands one on, or where the files cannot be
written, as in most containers, RLIMIT_NPROC still bounds processes (``kernel.sandbox.launcher_child``).

The kernel removes no group by itself: the supervisor of the last lab does. A supervisor that was killed leaves an empty
one, which the next lab uses and removes.

The launcher child is forked with this module: it imports nothing that the start of a command does not need.
"""

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

NAME: Final = "proxylab"
_TRIES: Final = 20
"""Another lab may end, and remove the group, between the moments when this one makes and enters it."""

_REMOVED: Final = (errno.EEXIST, errno.ENOENT, errno.ENODEV)
"""What the kernel says of a group that goes: also that it exists, of one that is no folder any more a moment later."""

_KIBIBYTE: Final = 1024
_SHARE: Final = (3, 4)
"""Of the machine's memory, for all commands. The rest is for the machine's own programs."""


class Bounds(Struct, frozen=True):
    """What all commands may have together: processes with their threads, and bytes of memory."""

    processes: int
    memory: int


class ControlGroup(Struct, frozen=True):
    """A group of the hierarchy of one version, with its folder and the controllers that bound what is in it."""

    version: int
    folder: Path
    controllers: tuple[str, ...]


_PIDS, _MEMORY = _CONTROLLERS = ("pids", "memory")


def bounds_here(processes: int, meminfo: str) -> Bounds:
    """So many processes, and a share of the memory in the text of /proc/meminfo."""
    (total,) = re.findall(r"^MemTotal: +(\d+) kB$", meminfo, re.MULTILINE)
    part, whole = _SHARE
    return Bounds(processes, int(total) * part // whole * _KIBIBYTE)


def find_groups(mounts: str, membership: str) -> tuple[ControlGroup, ...]:
    """The groups that bound the commands of labs here; nothing is made yet. Empty where no hierarchy offers one.

    ``mounts`` and ``membership`` are the texts of /proc/self/mountinfo and /proc/self/cgroup.
    """
    own = {name: path for line in membership.splitlines() for name, path in _named(line)}
    found: dict[Path, tuple[int, list[str]]] = {}
    missing = list(_CONTROLLERS)
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, *_, options = rest.split()
        if kind == "cgroup":
            offered = {name: _within(point, root, own[name]) for name in options.split(",") if name in own}
        elif kind == "cgroup2" and "" in own:
            offered = _handing_on(point, _within(point, root, own[""]))
        else:
            continue
        for name in tuple(missing):
            if (below := offered.get(name)) is not None:
                missing.remove(name)
                found.setdefault(below / NAME, (1 if kind == "cgroup" else 2, []))[1].append(name)
    return tuple(ControlGroup(version, folder, tuple(names)) for folder, (version, names) in found.items())


def _named(line: str) -> list[tuple[str, str]]:
    """The controllers of a line of /proc/PID/cgroup with the path of their group; version 2 names none (cgroups(7))."""
    _, names, path = line.split(":", 2)
    return [(name, path) for name in names.split(",")]


def _within(point: str, root: str, path: str) -> Path | None:
    """Where a mount of the folder ``root`` at ``point`` shows the group ``path``, if it does."""
    with suppress(ValueError):
        if ".." not in PurePosixPath(path).parts:  # it lies outside of this cgroup namespace
            return Path(point) / PurePosixPath(path).relative_to(root)
    return None


def _handing_on(point: str, own: Path | None) -> dict[str, Path | None]:
    """For each controller the nearest group, from ``own`` up to the mount, that hands on as many as any of them."""
    if own is None:
        return {}
    above = [each for each in (own, *own.parents) if each.is_relative_to(point)]
    handed = {each: [name for name in _handed_on(each) if name in _CONTROLLERS] for each in above}
    best = max(above, key=lambda each: len(handed[each]))  # the first of equals
    return dict.fromkeys(handed[best], best)


def _handed_on(folder: Path) -> list[str]:
    with suppress(OSError):
        return (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
    return []


def enter(groups: Sequence[ControlGroup], bounds: Bounds) -> None:
    """Move the calling process, and so its later children, into the groups; makes them where they are not there.

    Raises ``OSError``. Then it may be in some of them.
    """
    for left in reversed(range(_TRIES)):
        try:
            for group in groups:
                group.folder.mkdir(exist_ok=True)
                for name, value in _files(group, bounds):
                    (group.folder / name).write_text(str(value), encoding="ascii")
                (group.folder / "cgroup.procs").write_text("0", encoding="ascii")  # the writer
        except OSError as error:
            if not left or error.errno not in _REMOVED:
                raise
        else:
            return


def _files(group: ControlGroup, bounds: Bounds) -> list[tuple[str, int]]:
    """The files of a group that bound it, with what is written there, in this order.

    Swap counts too, where the kernel counts it: otherwise a command fills it beyond its memory.
    """
    files: list[tuple[str, int]] = []
    if _PIDS in group.controllers:
        files.append(("pids.max", bounds.processes))
    if _MEMORY in group.controllers:
        memory, swap = {
            1: (("memory.limit_in_bytes", bounds.memory), ("memory.memsw.limit_in_bytes", bounds.memory)),
            2: (("memory.max", bounds.memory), ("memory.swap.max", 0)),
        }[group.version]
        files += [memory, *([swap] if (group.folder / swap[0]).exists() else [])]
    return files


def remove(groups: Sequence[ControlGroup]) -> None:
    """Remove the groups that no other lab uses: the kernel keeps one with processes."""
    for group in groups:
        with suppress(OSError):
            group.folder.rmdir()


def in_words(groups: Sequence[ControlGroup], bounds: Bounds, why_none: str) -> str:
    """What bounds all commands together, and what does it; ``why_none`` is said where no group bounds memory."""
    by = {name: f"control group v{group.version}" for group in groups for name in group.controllers}
    processes = f"{bounds.processes:,} processes ({by.get(_PIDS, 'RLIMIT_NPROC')})"
    if _MEMORY in by:
        return f"{processes}, {bounds.memory / 2**30:.1f} GiB of memory ({by[_MEMORY]})"
    return f"{processes}, any amount of memory (no control group: {why_none})"
