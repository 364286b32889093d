"""On which CPU this thread sends.

Owns: keeping it on one for the length of a block.
Must not: know what is sent.

What a softirq could not finish waits on the backlog of the CPU that sent it. A fence sent from another CPU could
overtake it there, and would prove nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from proxylab.kernel.sandbox.linux import current_cpu

__all__ = ["one_cpu"]


@contextmanager
def one_cpu(cpu: int | None = None) -> Iterator[str]:
    """Keep this thread on the CPU it is on, or on another. Yields why that is not possible; empty when it is."""
    allowed = os.sched_getaffinity(0)
    refused = _pin({current_cpu() if cpu is None else cpu})
    try:
        yield refused
    finally:
        # A thread that must stay is slower, and no less right.
        _pin(allowed)


def _pin(cpus: set[int]) -> str:
    """Let this thread run on these CPUs only. Returns the kernel's refusal, which a seccomp filter may make it."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        return f"sched_setaffinity: {error.strerror}"
    return ""
