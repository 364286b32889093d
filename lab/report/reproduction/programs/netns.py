"""Be in a namespace of `ip netns`.

Owns: `enter`.
Must not: need anything but python3 and its standard library, or make a namespace.
"""

import ctypes
import os

NEWNET = 0x40000000  # CLONE_NEWNET of sched.h


def enter(namespace):
    """Let this process be in a namespace; a socket made there stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(fd, NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(fd)
