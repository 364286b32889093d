"""Whether processes are still: every thread sleeps, so what they have got they have sent on, discarded and logged.

A process of a proxy may end flows and answer no question. But a datagram wakes the thread that waits for it in the
moment in which the kernel puts it into the socket. A datagram that wakes none lies in a socket that is never read, such
as those by which mode userspace keeps node ports for itself.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

__all__ = ["are_still"]

_SLEEPS: Final = "S"


def are_still(pids: Collection[int]) -> bool:
    """Whether these processes have nothing to do; false where there is none, or one ends meanwhile.

    The kernel counts how often a thread goes to sleep or is preempted (proc(5)). Equal counts in two looks mean that no
    thread ran between them, not even one that was asleep in the first look and woken before its end.
    """
    try:
        before = [*_threads(pids)]
        sleep = all(state == _SLEEPS for _thread, state, _counts in before)
        return bool(before) and sleep and before == [*_threads(pids)]
    except (FileNotFoundError, ProcessLookupError):
        return False


def _threads(pids: Collection[int]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each thread, its state, and how often it has gone to sleep and was preempted."""
    for pid in sorted(pids):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
            lines = (thread / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
            counts = (*fields["voluntary_ctxt_switches"], *fields["nonvoluntary_ctxt_switches"])
            yield str(thread), fields["State"][0], counts
