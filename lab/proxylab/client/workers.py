"""Worker processes: they run scenarios side by side (``proxylab run --jobs``), each in sessions of its own.

A worker is a fork of the client. The client has no thread and no lab at that moment, so the fork copies no lock and
no socket of a lab, and the scenarios that it has read need not be sent. A worker takes the next task when it is free.
It sends back records over a pipe.

Ctrl-C reaches the client alone, which ends its workers. Each closes its labs, as a client without workers does. A
worker whose client dies gets SIGKILL (PR_SET_PDEATHSIG, prctl(2)), and the end of a client ends its lab processes.
"""

import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from msgspec import Struct

from proxylab.client.tasks import Say, TaskQueue, WorkerEnded, as_they_come, in_order
from proxylab.client.warning_lines import warnings_to
from proxylab.errors import InternalError, LabEndedError, LabError
from proxylab.protocol.faults import fault_of
from proxylab.resource_limits import limit_reached

Task = TypeVar("Task")
Result = TypeVar("Result")

Work = Callable[[Task, Say, Say], Result]
"""Does a task. The first function receives what it does now, the second one remarks for the user."""

_PR_SET_PDEATHSIG: Final = 1  # include/uapi/linux/prctl.h
_END_SECONDS: Final = 60.0
_INTERRUPTED: Final = 130
_TERMINATED: Final = 128 + signal.SIGTERM
_HELD_BACK: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that come to a worker only while it does tasks: before and after, no ``except`` stands around its code."""

_FORK: Final = multiprocessing.get_context("fork")


class _At(Struct, frozen=True):
    """What a worker does now."""

    what: str


class _Warned(Struct, frozen=True):
    """A warning, which the user must see at once."""

    line: str


class _Done(Struct, frozen=True):
    """A task is over."""

    result: Any
    notes: Sequence[str]


class _Worker:
    """A worker process, the client's end of its pipe, and the number of the task that it does."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Work[Any, Any]]], tasks: Sequence[Any]) -> None:
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(begin, tasks, theirs, self.pipe, os.getpid()), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.task: int | None = None


class Workers(Generic[Task, Result]):
    """Runs tasks in processes. Use as a context manager, and iterate ``results`` inside."""

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[Work[Task, Result]]],
        tasks: Sequence[Task],
        number: int,
        *,
        order: Sequence[int],
        kind: Callable[[Task], str],
        lost: Callable[[Task, LabError], Result],
        at: Say,
        note: Say,
    ) -> None:
        """Start no process yet.

        Args:
            begin: opens what a worker needs for its tasks, in the worker, and closes it at the end.
            tasks: all tasks, in the order of their results.
            number: of workers.
            order: in which tasks start, by their indexes.
            kind: a worker prefers tasks of the kind of its last one: it has a session for them already.
            lost: the result of a task whose worker died.
            at: receives what a worker does now.
            note: receives the remarks on a task, just before its result, and warnings at once.
        """
        self._begin, self._tasks, self._number = begin, tasks, number
        self._lost, self._at, self._note = lost, at, note
        self._queue = TaskQueue(tasks, order, kind)
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        for _ in range(min(self._number, len(self._tasks))):
            self._start()
        return self

    def _start(self) -> None:
        worker = _Worker(self._begin, self._tasks)
        self._workers.append(worker)
        self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        """Give a free worker its next task, if there is one."""
        worker.task = self._queue.take(worker.task)
        if worker.task is not None:
            with suppress(OSError):  # it has died, and the end of its pipe says so
                worker.pipe.send(worker.task)

    def results(self) -> Iterator[Result]:
        """The results in the order of the tasks, each as soon as it and those before it are there.

        Raises:
            KeyboardInterrupt: a worker was interrupted.
            InternalError: a worker met a bug.
        """
        return in_order(self.results_as_they_come())

    def results_as_they_come(self) -> Iterator[tuple[int, Result]]:
        """Each result with the number of its task. Raises what ``results`` raises."""
        return as_they_come(len(self._tasks), self._next, self._note)

    def _next(self) -> Mapping[int, tuple[Result, Sequence[str]]]:
        """Wait for the next message of a worker; its result by the task's number, if it has one."""
        ready = wait([each.pipe for each in self._workers])
        worker = next(each for each in self._workers if each.pipe in ready)
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        match message:
            case _At(what):
                self._at(what)
            case _Warned(line):
                self._note(line)
            case _Done(result, notes) if worker.task is not None:
                number = worker.task
                self._assign(worker)
                return {number: (result, notes)}
            case WorkerEnded() as ended:
                raise ended.error or InternalError("a worker process ended while there were tasks")
        return {}

    def _bury(self, worker: _Worker) -> Mapping[int, tuple[Result, Sequence[str]]]:
        """Start another worker in place of one that died."""
        worker.process.join(_END_SECONDS)
        self._workers.remove(worker)
        worker.pipe.close()
        if worker.process.exitcode == _INTERRUPTED:
            raise KeyboardInterrupt
        if self._queue:
            self._start()
        if worker.task is None:
            return {}
        match worker.process.exitcode or 0:
            case -9:
                how = f"by {signal.SIGKILL.name}, as the kernel does when memory runs out (see dmesg)"
            case code if code < 0 or code == _TERMINATED:
                how = f"by {signal.Signals(-code if code < 0 else signal.SIGTERM).name}"
            case code:
                how = f"with status {code}"
        error = LabEndedError(f"the worker process of the scenario was ended {how}; run it again, or with fewer --jobs")
        return {worker.task: (self._lost(self._tasks[worker.task], error), ())}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers. After an error they close their labs at once.

        Raises:
            LabError: a worker's session left something; only if there was no error before.
        """
        for each in self._workers:
            if error is not None:
                each.process.terminate()
            with suppress(OSError):
                each.pipe.send(None)
        try:
            faults = [self._last_fault(each) for each in self._workers]
            for each in self._workers:
                each.process.join(_END_SECONDS)
        finally:  # a second Ctrl-C waits for none of them: the end of a worker ends its labs
            for each in self._workers:
                each.process.kill()
                each.pipe.close()
        if error is None and (left := next(filter(None, faults), None)) is not None:
            raise left

    def _last_fault(self, worker: _Worker) -> LabError | None:
        """The error with which a worker ends."""
        try:
            while worker.pipe.poll(_END_SECONDS):
                message = worker.pipe.recv()
                if isinstance(message, WorkerEnded):
                    return message.error
                if isinstance(message, _Warned):
                    self._note(message.line)
        except (EOFError, OSError):
            pass
        return None


def _work(
    begin: Callable[[], AbstractContextManager[Work[Task, Result]]],
    tasks: Sequence[Task],
    pipe: Connection,
    clients: Connection,
    client: int,
) -> None:
    """A worker's life: one task after the other, until the client sends ``None`` or ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != client:
        os._exit(_INTERRUPTED)  # it died before prctl
    clients.close()
    # A handler, unlike SIG_IGN, is not inherited by the commands that run in a lab.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
            ended = _do_tasks(begin, tasks, pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)  # after a signal that has come and not been handled
        with suppress(OSError):
            pipe.send(ended)
    except KeyboardInterrupt as interrupt:
        os._exit(_TERMINATED if interrupt.args else _INTERRUPTED)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(number, lambda number, frame: None)  # a second one must not keep it from closing its labs
    raise KeyboardInterrupt(number)


def _do_tasks(
    begin: Callable[[], AbstractContextManager[Work[Task, Result]]], tasks: Sequence[Task], pipe: Connection
) -> WorkerEnded:
    try:
        with warnings_to(lambda line: pipe.send(_Warned(line))), begin() as work:
            while (number := pipe.recv()) is not None:
                notes: list[str] = []
                result = work(tasks[number], lambda what: pipe.send(_At(what)), notes.append)
                pipe.send(_Done(result, notes))
    except LabError as error:
        return WorkerEnded(fault_of(error))
    except Exception as error:
        if (lacking := limit_reached(error)) is not None:
            return WorkerEnded(fault_of(lacking))
        return WorkerEnded(bug=traceback.format_exc())
    return WorkerEnded()
