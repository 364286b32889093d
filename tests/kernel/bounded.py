"""A control group of a test's own, in which a lab finds what it finds in that of its user.

As a program (``python bounded.py``) it enters the group that commands would have there, with low bounds, tries to
exceed them, and prints what became of that as JSON: a guest runs it, too.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxylab.kernel.sandbox.control_groups import Bounds, ControlGroup, enter, find_groups, remove

BOUNDS = Bounds(20, 64 << 20)
TOO_MANY, TOO_MUCH = 40, 256 << 20
_INSIDE = "inside"


def groups_here() -> tuple[ControlGroup, ...]:
    """Those of a lab that starts in this process."""
    proc = Path("/proc/self")
    return find_groups((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())


@contextmanager
def own_groups() -> Iterator[tuple[Path, ...]]:
    """Folders of groups that bear a lab, for each hierarchy one; ``enter_own`` moves a process there.

    In version 2, what has processes hands nothing on. So the process is in one group, and the lab beside it.
    """
    made: list[Path] = []
    try:
        for group in groups_here():
            folder = group.folder.with_name(f"proxylab-test-{os.getpid()}")
            folder.mkdir()
            made.append(folder)
            if group.version == 2:
                (folder / _INSIDE).mkdir()
                handed = " ".join(f"+{name}" for name in group.controllers)
                (folder / "cgroup.subtree_control").write_text(handed)
        yield tuple(made)
    finally:
        for folder in made:
            for each in (folder / "proxylab", folder / _INSIDE, folder):
                with suppress(FileNotFoundError):
                    each.rmdir()


def enter_own(folders: tuple[Path, ...]) -> None:
    """Move this process into the groups of ``own_groups``."""
    for folder in folders:
        inside = folder / _INSIDE
        ((inside if inside.exists() else folder) / "cgroup.procs").write_text("0")


def exceed() -> dict[str, object]:
    """Enter the groups of commands with low bounds, and try to have more than they allow."""
    groups = groups_here()
    enter(groups, BOUNDS)
    children: list[int] = []
    refused = ""
    for _ in range(TOO_MANY):
        try:
            child = os.fork()
        except OSError as error:
            refused = type(error).__name__
            break
        if child == 0:
            signal.pause()
        children.append(child)
    for each in children:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    eater = os.fork()
    if eater == 0:
        bytearray(TOO_MUCH)[::4096] = b"x" * (TOO_MUCH // 4096)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(eater, 0)[1])
    return {"had": len(children), "refused": refused, "eater": status, "versions": [each.version for each in groups]}


def main() -> None:
    """Exceed the bounds in a child; then the groups are empty and go."""
    with own_groups() as folders:
        child = os.fork()
        if child == 0:
            enter_own(folders)
            sys.stdout.write(json.dumps(exceed()))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        groups = [ControlGroup(1, folder / "proxylab", ()) for folder in folders]
        assert all(each.folder.exists() for each in groups)
        remove(groups)
        assert not any(each.folder.exists() for each in groups)


if __name__ == "__main__":
    main()
