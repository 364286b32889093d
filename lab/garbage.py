"""Cycles of garbage, and when they are looked for.

Owns: ``look_seldom``, ``uncollected`` and ``count_as_old``.
Must not: free anything. What nothing refers to is freed at once, with or without the collector.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["count_as_old", "look_seldom", "uncollected"]


def look_seldom() -> None:
    """From now on in this process; best before it loads its modules, which live as long as it.

    By Python's own thresholds (700, 10, 10) the collector walks all of them again and again: a fifth of what a process
    costs that does nothing. And what a lab adds are frozen records without cycles, by the ten thousand: a third of a
    large sync.
    """
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for cycles of garbage during this block, whoever else runs meanwhile.

    The collector looks again at everything after a few hundred new objects. A run, and its verdicts, make tens of
    thousands of records that refer to no other: looking at them takes a fifth of the time and finds nothing.

    Nor does it look at them as soon as the block ends, as it would where they are more than it waits for: they are
    among the old objects by then.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > gc.get_threshold()[0]:
                count_as_old()
            gc.enable()


def count_as_old() -> None:
    """Count all that there is now among the old objects, at which the collector hardly ever looks.

    To freeze them and to thaw them again is the way there, and costs the splicing of two lists (``gc_freeze_impl`` and
    ``gc_unfreeze_impl``, Modules/gcmodule.c). Where others froze something nothing is done, since it is to stay so. To
    ask for that takes milliseconds there, one look at each of the frozen objects: so nothing of ours stays frozen.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
