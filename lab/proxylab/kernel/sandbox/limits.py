"""Limits of the machine that a large lab runs into.

The module raises the limit of the calling process and its children, and avoids the one that a guest runs into. It
bounds what commands of labs may take. ``proxylab.resource_limits`` puts a limit that was reached into words.
"""

import resource
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxylab.kernel.sandbox.control_groups import ControlGroup, bounds_here, enter, in_words
from proxylab.kernel.sandbox.linux import lock_new_memory
from proxylab.resource_limits import MOST_PROCESSES

_STACK_BYTES: Final = 256 * 1024
_ENDS_FIRST: Final = "1000"


def raise_descriptor_limit() -> None:
    """Use as many descriptors as the hard limit allows (RLIMIT_NOFILE, getrlimit(2)).

    A lab holds a namespace and a netlink socket for every node, pod and host, two packet sockets for every tap, and a
    socket for every listener; the usual soft limit of 1,024 ends at some two hundred pods.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bound_commands(groups: Sequence[ControlGroup] = ()) -> str:
    """Bound what the calling process and its children may have, and let the kernel end them first without memory.

    RLIMIT_NPROC counts the processes and threads of a user in a user namespace; the machine's root has no such limit.
    Where root of the machine has CAP_SYS_RESOURCE, no confined command may lower its score again (proc(5)).

    Returns what bounds all that are in the control groups, in words. Where those cannot be entered, RLIMIT_NPROC stands
    alone. Raises ``OSError`` where the score cannot be written.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = MOST_PROCESSES if hard == resource.RLIM_INFINITY else min(MOST_PROCESSES, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    Path("/proc/self/oom_score_adj").write_text(_ENDS_FIRST, encoding="ascii")
    bounds = bounds_here(most, Path("/proc/meminfo").read_text(encoding="ascii"))
    try:
        enter(groups, bounds)
    except OSError as error:
        return in_words((), bounds, f"{error.filename or groups[0].folder}: {error.strerror}")
    return in_words(groups, bounds, "no hierarchy hands memory on to where the lab is")


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
