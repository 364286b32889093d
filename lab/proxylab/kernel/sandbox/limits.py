"""Limits of the machine that a large lab runs into.

The module raises the limit of the calling process and its children, avoids the one that a guest runs into, and puts a
limit that was reached into words.
"""

import errno
import resource
import threading
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.linux import lock_new_memory

__all__ = ["limit_reached", "raise_descriptor_limit", "take_memory_in_order"]

_STACK_BYTES: Final = 256 * 1024


def raise_descriptor_limit() -> None:
    """Use as many descriptors as the hard limit allows (RLIMIT_NOFILE, getrlimit(2)).

    A lab holds a namespace and a netlink socket for every node, pod and host, two packet sockets for every tap, and a
    socket for every listener; the usual soft limit of 1,024 ends at some two hundred pods.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def take_memory_in_order() -> None:
    """Take all pages of each later mapping at once: for the lab process in a user-mode Linux.

    There, each run of pages that follow one another in the guest's memory is one mapping on the machine, which allows
    a process 65,530 of them (vm.max_map_count). Python writes to its pages in no order, so that nearly each page is a
    run. At 260 to 400 MB, a page fault of the guest repeats without end, and the lab process hangs. Pages that are
    taken at once follow one another: 366 MB then have 3,686 mappings. They also cost fewer page faults: small labs take
    0.91 to 0.93 of the time.
    """
    threading.stack_size(_STACK_BYTES)  # the default stack of a thread is a mapping of 8 MiB
    lock_new_memory()


def limit_reached(error: BaseException) -> CapabilityError | None:
    """The limit of the machine that caused ``error``, or ``None``."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            if cause.errno in (errno.EMFILE, errno.ENFILE):
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                return CapabilityError(
                    f"file descriptors for a lab of this size (the limit is {soft})",
                    "raise the hard limit ('ulimit -Hn', LimitNOFILE=, or fs.nr_open and fs.file-max)",
                )
            if cause.errno == errno.ENOSPC:
                return CapabilityError(
                    "namespaces for a lab of this size (unshare: no space left on device)",
                    "raise user.max_net_namespaces, or close other labs ('lsns -t net' lists what there is)",
                )
        cause = cause.__cause__ or cause.__context__
    return None
