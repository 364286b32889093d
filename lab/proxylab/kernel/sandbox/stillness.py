"""Whether processes are still: every thread sleeps, so what they have got they have sent on, discarded and logged.

A process of a proxy may end flows and answer no question. But a datagram wakes the thread that waits for it in the
moment in which the kernel puts it into the socket. A datagram that wakes none lies in a socket that is never read, such
as those by which mode userspace keeps node ports for itself.

A process also sleeps while it waits for the answer to its SYN, and acts again without one. The state of its sockets
shows that (``awaits_nothing``).
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_SLEEPS: Final = "S"
_STOPPED: Final = "T"
_SYN_SENT: Final = "02"


def are_still(pids: Collection[int], *, awaits_nothing: bool = False) -> bool:
    """Whether these processes have nothing to do; false where there is none, or one ends meanwhile.

    With ``awaits_nothing``, none of them may wait for an answer to its SYN either.

    The kernel counts how often a thread goes to sleep or is preempted (proc(5)). Equal counts in two looks mean that no
    thread ran between them, not even one that was asleep in the first look and woken before its end.
    """
    try:
        before = [*_threads(pids)]
        sleep = all(each.state == _SLEEPS for each in before)
        awaits = awaits_nothing and sleep and any(map(_awaits_an_answer, pids))
        return bool(before) and sleep and not awaits and before == [*_threads(pids)]
    except (FileNotFoundError, ProcessLookupError):
        return False


def are_stopped(pids: Collection[int]) -> bool:
    """Whether a signal has stopped every thread of these processes (SIGSTOP); false if one ends meanwhile."""
    try:
        return all(each.state == _STOPPED for each in _threads(pids))
    except (FileNotFoundError, ProcessLookupError):
        return False


def _awaits_an_answer(pid: int) -> bool:
    """Whether a socket of the process is in the state SYN-SENT: /proc/PID/net has those of all programs there."""
    process = Path(f"/proc/{pid}")
    lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(process / "net" / name)]
    waiting = {f"socket:[{fields[9]}]" for fields in lines if fields[3] == _SYN_SENT}
    return bool(waiting) and any(_link(each) in waiting for each in (process / "fd").iterdir())


def _lines(table: Path) -> list[str]:
    """The rows of a table of sockets; none where the kernel lacks IPv6."""
    return table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []


def _link(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # a socket that has just been closed awaits nothing
        return ""


class _ThreadState(NamedTuple):
    """A thread, its state, and how often it has gone to sleep and was preempted."""

    thread: str
    state: str
    switches: tuple[str, ...]


def _threads(pids: Collection[int]) -> Iterator[_ThreadState]:
    for pid in sorted(pids):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
            lines = (thread / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
            counts = (*fields["voluntary_ctxt_switches"], *fields["nonvoluntary_ctxt_switches"])
            yield _ThreadState(str(thread), fields["State"][0], counts)
