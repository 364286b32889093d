"""Limits of the machine that a large lab runs into.

The module raises the limit of the calling process and its children, and puts a limit that was reached into words.
"""

import errno
import resource

from proxylab.errors import CapabilityError

__all__ = ["limit_reached", "raise_descriptor_limit"]


def raise_descriptor_limit() -> None:
    """Use as many descriptors as the hard limit allows (RLIMIT_NOFILE, getrlimit(2)).

    A lab holds a namespace and a netlink socket for every node, pod and host, two packet sockets for every tap, and a
    socket for every listener; the usual soft limit of 1,024 ends at some two hundred pods.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
