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

    Nor does it look at them as soon as the block ends, as it would, having counted them: they are among the old objects
    by then. To freeze them and to thaw them again is the way there, and costs the splicing of two lists
    (``gc_freeze_impl`` and ``gc_unfreeze_impl``, Modules/gcmodule.c).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # what others froze is to stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()
