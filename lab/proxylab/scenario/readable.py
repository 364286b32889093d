"""Which files can be read to their end: a FIFO may wait for a writer forever, and so may files of the kernel."""

import stat
from pathlib import Path
from typing import Final

_OWN_DESCRIPTORS: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""A pipe among them has a writer: standard input, or a shell's ``<(…)``."""

_KERNEL: Final = ("/proc/", "/sys/")
"""What stands there looks like a regular file, and may answer without end (proc(5), /proc/kmsg)."""


def why_unreadable(path: Path) -> str:
    """Why a file must not be opened; empty if it may. Raises ``OSError`` or ``ValueError`` if it is not there."""
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        if str(path).startswith(_OWN_DESCRIPTORS):
            return ""
        return "it is a FIFO or a device"
    if str(path.resolve()).startswith(_KERNEL):
        return "it is a file of the kernel"
    return ""
