"""Keeps a sender's thread on one CPU for the length of a block.

A packet that its softirq could not finish waits on the backlog of the CPU that sent it. A sentinel packet sent from
another CPU could overtake it there, and would prove nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from proxylab.kernel.sandbox.linux import current_cpu


@contextmanager
def one_cpu(cpu: int | None = None) -> Iterator[str]:
    """Pin this thread to its CPU, or to ``cpu``. Yields the kernel's reason where it refuses, empty otherwise."""
    allowed = os.sched_getaffinity(0)
    refused = _pin({current_cpu() if cpu is None else cpu})
    try:
        yield refused
    finally:
        # Where the kernel does not restore the mask, the thread is slower but the results stay right.
        _pin(allowed)


def _pin(cpus: set[int]) -> str:
    """Let this thread run on these CPUs only. Returns the kernel's refusal (a seccomp filter may be the reason)."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        return f"sched_setaffinity: {error.strerror}"
    return ""
