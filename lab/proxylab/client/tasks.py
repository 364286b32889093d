"""The tasks of a run that workers do side by side: which come next, and their results in order.

Workers are processes of this machine (``client.workers``) or on the nodes of a Ray cluster (``client.ray_workers``).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from proxylab.errors import InternalError, LabError
from proxylab.protocol.faults import error_of
from proxylab.protocol.messages import RaisedFault

Task = TypeVar("Task")
Result = TypeVar("Result")
Say = Callable[[str], None]


class WorkerEnded(Struct, frozen=True):
    """A worker has closed its sessions, or met a bug: with the error, or the traceback of the bug."""

    fault: RaisedFault | None = None
    bug: str = ""

    @property
    def error(self) -> LabError | None:
        """The error to raise, if there is one."""
        if self.bug:
            return InternalError(f"a worker process met a bug:\n{self.bug}")
        return None if self.fault is None else error_of(self.fault)


class TaskQueue(Generic[Task]):
    """The tasks that no worker has yet, by their indexes, in the order in which they start."""

    def __init__(self, tasks: Sequence[Task], order: Sequence[int], kind: Callable[[Task], str]) -> None:
        """Hold all tasks.

        Args:
            tasks: in the order of their results.
            order: in which they start, by their indexes.
            kind: a worker prefers tasks of the kind of its last one: it has a session for them already.
        """
        self._tasks, self._kind = tasks, kind
        self._pending = deque(order)

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, after: int | None = None) -> int | None:
        """The next task for a worker whose last one was ``after``; ``None`` if there is no more."""
        if not self._pending:
            return None
        kind = None if after is None else self._kind(self._tasks[after])
        taken = next((each for each in self._pending if self._kind(self._tasks[each]) == kind), self._pending[0])
        self._pending.remove(taken)
        return taken

    def give_back(self, number: int) -> None:
        """Take a task back from a worker that is gone; it is the next one."""
        self._pending.appendleft(number)


def as_they_come(
    number: int, more: Callable[[], Mapping[int, tuple[Result, Sequence[str]]]], note: Say
) -> Iterator[tuple[int, Result]]:
    """The results of so many tasks, each with the index of its task.

    Args:
        number: of tasks.
        more: waits for results with remarks for the user, by the indexes of their tasks.
        note: receives the remarks, just before the result.
    """
    while number:
        for index, (result, notes) in more().items():
            number -= 1
            for each in notes:
                note(each)
            yield index, result


def in_order(results: Iterator[tuple[int, Result]]) -> Iterator[Result]:
    """The results of ``as_they_come`` in the order of the tasks, each as soon as it and those before it are there."""
    found: dict[int, Result] = {}
    following = 0
    for index, result in results:
        found[index] = result
        while following in found:
            yield found.pop(following)
            following += 1
