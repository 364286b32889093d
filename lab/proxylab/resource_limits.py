"""Limits on processes (getrlimit(2)) that a lab runs into: what it needs, and which limit an error comes from.

The client compares before it starts a lab process, since much of what fails below a limit cannot say so: Python needs
a descriptor to import the module that puts an error into words.
"""

import errno
import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

from proxylab.errors import CapabilityError

_LEAST_DESCRIPTORS: Final = 64
_DESCRIPTORS_A_NETNS: Final = 7
"""A lab process holds about 40 descriptors and five for each node, pod and host; probes need two more of each."""

_LEAST_ADDRESS_SPACE: Final = 1 << 30
"""A lab process maps 0.9 GB, of which it uses a tenth: each thread has a stack of 8 MB."""
_LEAST_FILE: Final = 16 << 20
_LEAST_PROCESSES: Final = 64
"""A small lab has a dozen processes and threads; a kube-proxy has ten, and every command of a node one."""

MOST_PROCESSES: Final = 16_384
"""So many a lab's commands may have: a kube-proxy has a dozen threads, so this is enough for a thousand."""

_EVERY_USER: Final = ["0", "0", str(2**32 - 1)]


class _Limit(NamedTuple):
    """A limit in words: what it limits, and how a shell shows and raises it, in units of ``unit``."""

    number: int
    what: str
    shown: str
    unit: int


_DESCRIPTORS: Final = _Limit(resource.RLIMIT_NOFILE, "open files", "ulimit -n", 1)
_ADDRESS_SPACE: Final = _Limit(resource.RLIMIT_AS, "KiB of address space", "ulimit -v", 1024)
_FILE: Final = _Limit(resource.RLIMIT_FSIZE, "KiB in a file", "ulimit -f", 1024)
_PROCESSES: Final = _Limit(resource.RLIMIT_NPROC, "processes of this user", "ulimit -u", 1)


def check_limits() -> None:
    """Raise ``CapabilityError`` if the smallest lab would run into a limit of this process."""
    check_descriptors(1)
    _check(_ADDRESS_SPACE, _LEAST_ADDRESS_SPACE)
    _check(_FILE, _LEAST_FILE)
    if _allowed(_PROCESSES) != resource.RLIM_INFINITY:
        # Root itself has no such limit, and its commands are another user, who begins with no process.
        _check(_PROCESSES, _LEAST_PROCESSES + (0 if is_root_of_the_machine() else _own_tasks()))


def is_root_of_the_machine() -> bool:
    """Whether the calling process is root, and not root of a user namespace only (user_namespaces(7))."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _EVERY_USER


def check_descriptors(namespaces: int) -> None:
    """Raise ``CapabilityError`` if a lab of so many nodes, pods and hosts has too few descriptors."""
    _check(_DESCRIPTORS, _LEAST_DESCRIPTORS + _DESCRIPTORS_A_NETNS * namespaces)


def limit_reached(error: BaseException, *, in_lab: bool = False) -> CapabilityError | None:
    """The limit of the machine that caused ``error``, or ``None``.

    In a lab process, a full device means that the kernel allows no more namespaces (unshare(2)).
    """
    cause: BaseException | None = error
    while cause is not None:
        found = _of_system_call(cause, in_lab=in_lab) if isinstance(cause, OSError) else _of_python(cause)
        if found is not None:
            return found
        cause = cause.__cause__ or cause.__context__
    return None


def _of_system_call(error: OSError, *, in_lab: bool) -> CapabilityError | None:
    match error.errno:
        case errno.EMFILE | errno.ENFILE:
            return _lacking(_DESCRIPTORS)
        case errno.EFBIG:
            return _lacking(_FILE)
        case errno.ENOSPC if in_lab:
            return CapabilityError(
                "namespaces for a lab of this size (unshare: no space left on device)",
                "raise user.max_net_namespaces, or close other labs ('lsns -t net' lists what there is)",
            )
        case errno.ENOMEM if _is_set(_ADDRESS_SPACE):
            return _lacking(_ADDRESS_SPACE)
        case errno.EAGAIN if _is_set(_PROCESSES) and not is_root_of_the_machine():  # fork(2)
            return _lacking(_PROCESSES)
    return None


def _of_python(error: BaseException) -> CapabilityError | None:
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if not (no_thread or isinstance(error, MemoryError)):
        return None
    if _is_set(_ADDRESS_SPACE):
        return _lacking(_ADDRESS_SPACE)
    if no_thread and _is_set(_PROCESSES) and not is_root_of_the_machine():
        return _lacking(_PROCESSES)
    return CapabilityError("more threads", "raise pids.max of its control group") if no_thread else None


def no_process_for_command() -> CapabilityError:
    """What a lab lacks whose launcher may start no process (fork(2), EAGAIN)."""
    if resource.RLIM_INFINITY != _allowed(_PROCESSES) < MOST_PROCESSES:
        return _lacking(_PROCESSES)
    return CapabilityError(
        f"more than {MOST_PROCESSES:,} processes for commands of labs, or more than pids.max of a control group",
        "run smaller labs, or fewer at once; as root, --privileged has no such limit",
    )


def _check(limit: _Limit, needed: int) -> None:
    if resource.RLIM_INFINITY != _allowed(limit) < needed:
        raise _lacking(limit, needed)


def _allowed(limit: _Limit) -> int:
    soft, hard = resource.getrlimit(limit.number)
    raised = limit is _DESCRIPTORS or (limit is _PROCESSES and is_root_of_the_machine())  # by the lab process itself
    return hard if raised else soft


def _lacking(limit: _Limit, needed: int = 0) -> CapabilityError:
    least = _allowed(limit)
    allowed = "any number" if least == resource.RLIM_INFINITY else f"{least // limit.unit:,}"
    wanted = f"{-(-needed // limit.unit):,} {limit.what}" if needed else f"more {limit.what}"
    return CapabilityError(f"{wanted}; '{limit.shown}' allows {allowed}", f"raise that limit with '{limit.shown}'")


def _is_set(limit: _Limit) -> bool:
    return resource.getrlimit(limit.number)[0] != resource.RLIM_INFINITY


def _own_tasks() -> int:
    """How many processes and threads the user has."""
    found = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found += len([*(process / "task").iterdir()]) if process.stat().st_uid == os.geteuid() else 0
            except OSError:  # it has ended
                continue
    return found
