"""A /proc that shows the processes of the caller's pid namespace, and of the machine nothing that can be written."""

from contextlib import suppress
from typing import Final

from proxylab.kernel.sandbox.linux import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

_OF_THE_MACHINE: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")


def mount_proc() -> None:
    """Mount a /proc of the calling process's pid namespace, with the machine's part read-only.

    Root can write to much of that part without any capability, and it belongs to no namespace. /proc/sys/net stays
    writable: it belongs to the network namespace of the process that opens it.
    """
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("/proc/sys/net", "/proc/sys/net", "", MS_BIND)
    for path in _OF_THE_MACHINE:
        with suppress(FileNotFoundError):
            mount(path, path, "", MS_BIND | MS_REC)
            mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
