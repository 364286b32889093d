"""Cycles of garbage, and when they are looked for.

Owns: ``uncollected``.
Must not: free anything. What nothing refers to is freed at once, with or without the collector.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for cycles of garbage during this block, whoever else runs meanwhile.

    The collector looks again at everything after a few hundred new objects. A run, and its verdicts, make tens of
    thousands of records that refer to no other: looking at them takes a fifth of the time and finds nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
