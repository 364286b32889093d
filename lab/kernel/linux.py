"""System calls that Python 3.11 does not offer.

Owns: thin, typed wrappers of unshare(2), setns(2), mount(2), umount2(2), pidfd_getfd(2) and prctl(2), by the C library.
Must not: hold policy. Each wrapper makes one call and raises ``OSError`` with the errno it failed with.
"""

import ctypes
import os
import signal
from typing import Final

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "CLONE_NEWUTS",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "borrow_descriptor",
    "die_with_parent",
    "forgo_machine_capabilities",
    "mount",
    "setns",
    "unshare",
]

# include/uapi/linux/sched.h
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

# include/uapi/linux/mount.h
MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_DROP: Final = 24

# include/uapi/linux/capability.h: what a lab never needs and root could hurt the machine with.
_CAP_SYS_MODULE: Final = 16
_CAP_SYS_RAWIO: Final = 17
_CAP_SYS_BOOT: Final = 22
_CAP_SYS_TIME: Final = 25

_SYS_PIDFD_GETFD: Final = 438  # on every architecture

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags`` for new ones (unshare(2)).

    CLONE_NEWUSER is refused with EINVAL in a process of several threads; CLONE_NEWPID takes effect for children only.
    """
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    """Move the calling thread into another namespace: the one behind ``fd``, of ``kind`` (a CLONE_NEW* flag)."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount ``source`` on ``target`` (mount(2))."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    )
    _check(result, f"mount {kind or source} on {target}")


def borrow_descriptor(process: int, number: int) -> int:
    """A descriptor of one's own for what another process has open as ``number`` (pidfd_getfd(2), Linux 5.6).

    ``process`` is a pidfd of one that the caller might trace.
    """
    borrowed = int(_libc.syscall(ctypes.c_long(_SYS_PIDFD_GETFD), process, number, 0))
    if borrowed < 0:
        _check(borrowed, "pidfd_getfd")
    return borrowed


def die_with_parent() -> None:
    """Ask for SIGKILL when the thread that made this process ends (PR_SET_PDEATHSIG, prctl(2)).

    The wish does not reach back: a parent that died before the call is not noticed. Whoever calls this also holds an
    inherited socket or pipe whose end-of-file tells the same.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")


def forgo_machine_capabilities() -> None:
    """Let no program started from here load modules, touch hardware, reboot, or set the clock (capabilities(7)).

    Taken out of the bounding set, so that root regains them by no exec(2). iptables, for one, would run modprobe.
    """
    for capability in (_CAP_SYS_MODULE, _CAP_SYS_RAWIO, _CAP_SYS_BOOT, _CAP_SYS_TIME):
        _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0), "prctl")
