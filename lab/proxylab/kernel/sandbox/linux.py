"""System calls that Python 3.11 does not offer.

Thin, typed wrappers of unshare(2), setns(2), mount(2), fsopen(2), mount_setattr(2) and their kin, clone3(2),
pidfd_getfd(2), prctl(2), mlockall(2), malloc_trim(3), sched_getcpu(3) and perf_event_open(2), by the C library. Each
makes one call, holds no policy, and raises ``OSError`` with the errno of the failure.
"""

import ctypes
import errno
import os
import signal
import struct
from typing import Final

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
MS_MOVE: Final = 0x2000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24

# include/uapi/asm-generic/mman.h
_MCL_FUTURE: Final = 2

# include/uapi/linux/capability.h: capabilities that a lab never needs and that can damage the machine.
_CAP_SYS_MODULE: Final = 16
_CAP_SYS_RAWIO: Final = 17
_CAP_SYS_BOOT: Final = 22
_CAP_SYS_TIME: Final = 25

# On every architecture.
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_SYS_CLONE3: Final = 435
_SYS_PIDFD_GETFD: Final = 438
_SYS_MOUNT_SETATTR: Final = 442

# By the machine's name, as uname(2) has it.
_SYS_PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}

# include/uapi/linux/mount.h, perf_event.h
_FSOPEN_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_FSMOUNT_CLOEXEC: Final = 1
_MOUNT_ATTR_READ_ONLY: Final = 0x1 | 0x2 | 0x4 | 0x8  # and no set-uid, no devices, no execution
_MOUNT_ATTR_RDONLY: Final = 0x1
_MOUNT_ATTR_IDMAP: Final = 0x00100000
_MOUNT_ATTRIBUTES: Final = struct.Struct("=QQQQ")  # struct mount_attr: to set, to clear, propagation, user namespace
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 0x4
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_CLONE_ARGUMENTS: Final = struct.Struct("=8Q")  # struct clone_args up to tls (include/uapi/linux/sched.h)
_CLONE_PARENT: Final = 0x00008000
_PERF_FLAG_FD_CLOEXEC: Final = 8
_ANY_CPU: Final = -1
_NO_GROUP: Final = -1

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
    """A duplicate of descriptor ``number`` of another process (pidfd_getfd(2), Linux 5.6).

    ``process`` is a pidfd. The caller needs the right to trace that process.
    """
    return _descriptor("pidfd_getfd", _SYS_PIDFD_GETFD, process, number, 0)


def mount_detached(kind: str) -> int:
    """A descriptor of the root of a read-only file system that is attached nowhere (fsmount(2), Linux 5.2).

    No other process sees it, and it goes when the descriptor closes.
    """
    context = _descriptor("fsopen", _SYS_FSOPEN, kind.encode(), _FSOPEN_CLOEXEC)
    try:
        _check(_libc.syscall(ctypes.c_long(_SYS_FSCONFIG), context, _FSCONFIG_CMD_CREATE, None, None, 0), "fsconfig")
        return _descriptor("fsmount", _SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, _MOUNT_ATTR_READ_ONLY)
    finally:
        os.close(context)


def make_mounts_read_only(path: str) -> None:
    """Make every mount at and below ``path``, which is a mount point, read-only (mount_setattr(2), Linux 5.12)."""
    _set_mount_attributes(_AT_FDCWD, path, _AT_RECURSIVE, _MOUNT_ATTRIBUTES.pack(_MOUNT_ATTR_RDONLY, 0, 0, 0))


def make_mount_writable(path: str) -> None:
    """Take back the read-only mark of the one mount at ``path`` (mount_setattr(2), Linux 5.12)."""
    _set_mount_attributes(_AT_FDCWD, path, 0, _MOUNT_ATTRIBUTES.pack(0, _MOUNT_ATTR_RDONLY, 0, 0))


def mount_with_mapped_owners(path: str, user_namespace: int) -> None:
    """Mount a read-only copy of the mounts at and below ``path`` over them, whose files have other owners.

    ``user_namespace`` maps the owner that a file has to the one that it has there (mount_setattr(2), Linux 5.12). The
    file system must allow it.
    """
    copy = _descriptor("open_tree", _SYS_OPEN_TREE, _AT_FDCWD, path.encode(), _OPEN_TREE_CLONE | _AT_RECURSIVE)
    try:
        wanted = _MOUNT_ATTRIBUTES.pack(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_IDMAP, 0, 0, user_namespace)
        _set_mount_attributes(copy, "", _AT_EMPTY_PATH | _AT_RECURSIVE, wanted)
        moved = (copy, b"", _AT_FDCWD, path.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
        _check(int(_libc.syscall(ctypes.c_long(_SYS_MOVE_MOUNT), *moved)), "move_mount")
    finally:
        os.close(copy)


def _set_mount_attributes(at: int, path: str, flags: int, attributes: bytes) -> None:
    given = ctypes.create_string_buffer(attributes, len(attributes))
    done = int(_libc.syscall(ctypes.c_long(_SYS_MOUNT_SETATTR), at, path.encode(), flags, given, len(attributes)))
    _check(done, f"mount_setattr {path}")


def fork_sibling() -> int:
    """Fork a child of the calling process's parent (CLONE_PARENT, clone3(2)); 0 in that child.

    It is a copy of this process, which must have one thread. No handler of ``os.register_at_fork`` runs.
    """
    given = ctypes.create_string_buffer(_CLONE_ARGUMENTS.pack(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0))
    pid = int(_libc.syscall(ctypes.c_long(_SYS_CLONE3), given, _CLONE_ARGUMENTS.size))
    if pid < 0:
        _check(pid, "clone3")
    return pid


def open_own_perf_event(attributes: bytes) -> int:
    """A descriptor of an event of the calling thread, on any CPU (perf_event_open(2)).

    ``attributes`` is a ``struct perf_event_attr``.
    """
    number = _SYS_PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open: not known for {os.uname().machine}")
    given = ctypes.create_string_buffer(attributes, len(attributes))
    return _descriptor("perf_event_open", number, given, 0, _ANY_CPU, _NO_GROUP, _PERF_FLAG_FD_CLOEXEC)


def _descriptor(call: str, number: int, *arguments: object) -> int:
    """Make a system call by number, and return the descriptor that it returns."""
    made = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if made < 0:
        _check(made, call)
    return made


def current_cpu() -> int:
    """The CPU on which the calling thread runs (sched_getcpu(3))."""
    cpu = int(_libc.sched_getcpu())
    if cpu < 0:
        _check(cpu, "sched_getcpu")
    return cpu


def die_with_parent() -> None:
    """Ask for SIGKILL when the thread that made this process ends (PR_SET_PDEATHSIG, prctl(2)).

    The kernel does not notice a parent that died before the call. So a caller also holds an inherited socket or pipe,
    and end-of-file on it says the same.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")


def show_to_own_user() -> None:
    """Let /proc/PID of this process belong to its user again, which a change of the user ends (PR_SET_DUMPABLE)."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def lock_new_memory() -> None:
    """Give this process the pages of each later mapping at once, and keep them in memory."""
    _check(_libc.mlockall(ctypes.c_int(_MCL_FUTURE)), "mlockall")


def trim_heap() -> None:
    """Give the machine back the free memory that malloc keeps; other C libraries than glibc keep none."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(ctypes.c_size_t(0))


def forgo_machine_capabilities() -> None:
    """Keep all programs started from here from loading modules, touching hardware, rebooting or setting the clock.

    The capabilities leave the bounding set, so that root does not regain them by exec(2) (capabilities(7)). iptables,
    for one, would run modprobe.
    """
    for capability in (_CAP_SYS_MODULE, _CAP_SYS_RAWIO, _CAP_SYS_BOOT, _CAP_SYS_TIME):
        _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0), "prctl")
