"""Workers on the nodes of a Ray cluster (``proxylab run --ray ADDRESS``).

A worker is a Ray actor on one node, and runs one scenario after the other (``client.ray_node``). Ray reports when an
actor has died, with its process or with its node; another worker then runs its scenario. No scenario has two results,
since the caller drops the answer that it waited for before it asks another worker.

Only bytes cross the cluster, so that none of its own processes needs proxylab to read them. The class of the actor is
local to a function, so that Ray sends its code: a node without proxylab can then say that it lacks it.
"""

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

from proxylab import __version__
from proxylab.client.bundles import BundleStore
from proxylab.client.ray_cluster import ClusterError, RayNode, answer_within, connect, lab_worker, nodes_of
from proxylab.client.ray_node import NodeSettings, RayAnswer
from proxylab.client.scenario_run import Run, ended_early
from proxylab.client.tasks import Say, TaskQueue, WorkerEnded, as_they_come, in_order
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError
from proxylab.timing import Deadline, DeadlineExceededError, wait_until_seen
from proxylab.verdict.model import UNRESOLVED, Fault, ProbeVerdict, ScenarioResult, Skip, StepVerdict

_Verdict = TypeVar("_Verdict", bound=ProbeVerdict | StepVerdict)
_Found = Mapping[int, tuple[ScenarioResult, Sequence[str]]]

_LOOK_SECONDS: Final = 2.0
"""How often to look for new nodes."""
_NODE_SECONDS: Final = 30.0
"""How long the cluster may have no node."""
_BEGIN_SECONDS: Final = 300.0
"""How long no worker may be ready: other jobs may have all processors."""
_END_SECONDS: Final = 60.0
"""How long the workers may take to close their sessions."""
_LEAVE_SECONDS: Final = 5.0
"""How long the head may take to answer when the caller leaves. It then ends the workers, and their labs."""
_MOST_LOSSES: Final = 3
"""How many workers may die with one scenario, or on one node."""


@dataclass(eq=False)
class _RayWorker:
    """An actor, the answer that the caller waits for, and the number of the task that it does."""

    node: RayNode
    actor: Any
    call: Any
    task: int | None = None
    is_ready: bool = False


class RayWorkers:
    """Runs scenarios on a Ray cluster. Use as a context manager, and iterate ``results`` inside."""

    def __init__(
        self,
        address: str,
        runs: Sequence[Run],
        settings: NodeSettings,
        *,
        order: Sequence[int],
        number: int | None,
        store: BundleStore | None,
        at: Say,
        note: Say,
    ) -> None:
        """Start nothing yet.

        Args:
            address: of the cluster's head, as ``ray://HOST:PORT``.
            runs: in the order of their results.
            settings: of every worker.
            order: in which runs start, by their indexes.
            number: of workers on each node; by default two for each processor, ``MOST_JOBS`` at most.
            store: where the evidence goes; ``None`` saves none.
            at: receives what a worker begins.
            note: receives remarks for the user.
        """
        self._address, self._runs, self._settings, self._number = address, runs, settings, number
        self._store, self._at, self._note = store, at, note
        self._queue = TaskQueue(runs, order, lambda run: run.engine_on_kernel)
        self._workers: list[_RayWorker] = []
        self._left_out: dict[str, str] = {}
        self._losses: Counter[str | int] = Counter()  # of nodes, by their ids, and of runs, by their indexes
        self._has_begun = False
        self._looked = self._last_ready = 0.0

    def __enter__(self) -> Self:
        """Connect to the cluster.

        Raises:
            CapabilityError: Ray is not installed here.
            ClusterError: there is no cluster at the address.
        """
        self._ray = connect(self._address)
        choices = self._settings.choices.values()
        binaries = {choice.upstream.binary for choice in choices if choice.upstream}
        self._binaries = {path: self._ray.put(Path(path).read_bytes()) for path in binaries}
        self._actors = self._ray.remote(lab_worker())
        self._last_ready = time.monotonic()
        return self

    def results(self) -> Iterator[ScenarioResult]:
        """The results in the order of the runs, each as soon as it and those before it are there.

        Raises:
            ClusterError: no node can run labs, or the cluster is gone.
            InternalError: a worker met a bug.
        """
        try:
            yield from in_order(as_they_come(len(self._runs), self._next, self._note))
        except ConnectionError as error:
            raise ClusterError(
                f"the Ray cluster at {self._address} is gone ({error}); run again when it is back", ExitCode.CAPABILITY
            ) from error

    def _next(self) -> _Found:
        """Wait for the next answer of a worker; the result in it by its run's index, if it has one."""
        self._look_for_nodes()
        if not self._is_waiting:
            self._wait_for_nodes()
        calls = {each.call: each for each in self._workers if each.call is not None}
        ready, _ = self._ray.wait([*calls], timeout=_LOOK_SECONDS) if calls else ([], [])
        if any(each.is_ready for each in self._workers):
            self._last_ready = time.monotonic()
        if not ready:
            waited = time.monotonic() - self._last_ready
            return {} if calls and waited < _BEGIN_SECONDS else self._give_up(is_busy=bool(calls))
        worker = calls[ready[0]]
        try:
            answer = self._ray.get(worker.call)
        except self._ray.exceptions.RayError as error:
            return self._lost(worker, error)
        worker.call = None
        if worker.is_ready:
            return self._settled(worker, pickle.loads(answer))  # noqa: S301 - from a worker of this run
        if answer:
            self._leave_out(worker, answer)
        else:
            worker.is_ready = self._has_begun = True
            self._assign()
        return {}

    @property
    def _is_waiting(self) -> bool:
        """Whether a worker will answer."""
        return any(each.call is not None for each in self._workers)

    def _wait_for_nodes(self) -> None:
        """Wait some time for a node to join the cluster, unless there are nodes and none can run labs."""

        async def look() -> bool:
            self._look_for_nodes()
            return self._is_waiting or (bool(self._left_out) and not self._has_begun)

        with suppress(DeadlineExceededError):
            asyncio.run(wait_until_seen(look, Deadline.after(_NODE_SECONDS), "a node of the Ray cluster"))

    def _look_for_nodes(self) -> None:
        """Start workers where there are too few: on all nodes at first, then on new ones and in place of dead ones."""
        is_early = time.monotonic() - self._looked < _LOOK_SECONDS
        if not self._queue or (is_early and self._is_waiting):
            return
        self._looked = time.monotonic()
        had = Counter(each.node.id for each in self._workers)
        lacking = [
            (nth, node)
            for node in nodes_of(self._ray, self._number)
            if node.id not in self._left_out
            for nth in range(had[node.id], node.workers)
        ]
        wanted = max(0, len(self._queue) - sum(not each.is_ready for each in self._workers))
        for _, node in sorted(lacking, key=lambda each: each[0])[:wanted]:
            self._start(node)

    def _start(self, node: RayNode) -> None:
        """Start a worker on a node, with its share of the node's processors."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - an extra

        affinity = NodeAffinitySchedulingStrategy(node.id, soft=False)
        actor = self._actors.options(num_cpus=node.share, scheduling_strategy=affinity).remote()
        settings = pickle.dumps(self._settings)
        call = actor.begin.remote(__version__, settings, [*self._binaries], *self._binaries.values())
        self._workers.append(_RayWorker(node, actor, call))

    def _assign(self) -> None:
        """Give each free worker its next run, if there is one."""
        for worker in self._workers:
            if worker.is_ready and worker.call is None:
                worker.task = self._queue.take(worker.task)
                if worker.task is not None:
                    run = self._runs[worker.task]
                    self._at(f"{_words(run)} on node {worker.node.name}")
                    worker.call = worker.actor.result.remote(pickle.dumps(_with_source(run)))

    def _settled(self, worker: _RayWorker, answer: RayAnswer | WorkerEnded) -> _Found:
        """The result in an answer, with its evidence saved here. Raises the error of a worker that met a bug."""
        if isinstance(answer, WorkerEnded) or worker.task is None:
            bug = answer.error if isinstance(answer, WorkerEnded) else None
            raise bug or InternalError(f"a worker on node {worker.node.name} answered out of turn")
        number, notes = worker.task, [*answer.notes]
        self._assign()
        result = _with_node(answer.result, worker.node.name)
        if result.overall in UNRESOLVED:
            notes.append(f"{_words(self._runs[number])} ran on node {worker.node.name}")

        def saved(verdict: _Verdict) -> _Verdict:
            files = answer.bundles.get(verdict.written.position)
            if self._store is None or (files is None and verdict.overall in UNRESOLVED):
                return verdict
            return self._store.settle(verdict, result.engine_on_kernel, lambda: files or {}, notes.append)

        probes, steps = tuple(map(saved, result.probes)), tuple(map(saved, result.steps))
        return {number: (replace(result, probes=probes, steps=steps), notes)}

    def _leave_out(self, worker: _RayWorker, reason: str) -> None:
        """Start no more workers on a node that cannot run labs."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)
        if worker.node.id not in self._left_out:
            self._left_out[worker.node.id] = f"node {worker.node.name}: {reason}"
            self._note(f"no scenario runs on {self._left_out[worker.node.id]}")

    def _lost(self, worker: _RayWorker, error: Exception) -> _Found:
        """Take the run of a worker that died back, for another one. After some tries that is its result."""
        if isinstance(error, self._ray.exceptions.RayTaskError):  # the worker's own code raised it
            raise InternalError(f"a worker on node {worker.node.name} met a bug:\n{error}") from error
        self._losses[worker.node.id] += 1
        if self._losses[worker.node.id] == _MOST_LOSSES:
            self._left_out[worker.node.id] = f"node {worker.node.name}: its workers died"
        self._workers.remove(worker)
        number = worker.task
        if not worker.is_ready or number is None:
            return {}
        self._losses[number] += 1
        where = f"{_words(self._runs[number])}: its worker on node {worker.node.name} died"
        if self._losses[number] < _MOST_LOSSES:
            self._note(f"{where}; another worker runs it")
            self._queue.give_back(number)
            self._assign()
            return {}
        died = LabEndedError(f"{where}, as did {_MOST_LOSSES - 1} before; look for memory that ran out (see dmesg)")
        return {number: (ended_early(self._runs[number], died), ())}

    def _give_up(self, *, is_busy: bool) -> _Found:
        """The results of the runs for which there is no worker. Raises ``ClusterError`` if there has never been one."""
        cluster = f"the Ray cluster at {self._address}"
        if self._has_begun:
            error = LabEndedError(f"no node of {cluster} is left to run it; run it again when there is one")
            return {each: (ended_early(self._runs[each], error), ()) for each in iter(self._queue.take, None)}
        if self._left_out:
            why = "\n  ".join([f"no node of {cluster} can run labs:", *self._left_out.values()])
        elif is_busy:
            why = f"no node of {cluster} had a free processor for {_BEGIN_SECONDS:.0f} s; try again when it is idle"
        else:
            why = f"{cluster} has no node with a processor; add one: ray start --address=HEAD:6379"
        raise ClusterError(why, ExitCode.CAPABILITY)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers; after an error at once, and their labs with them.

        Raises:
            LabError: a worker's session left something; only if there was no error before.
        """
        left: Sequence[LabError] = ()
        try:
            if error is None:
                left = answer_within(_END_SECONDS + _LEAVE_SECONDS, self._close) or ()
        finally:
            answer_within(_LEAVE_SECONDS, self._ray.shutdown)
        if left:
            raise left[0]

    def _close(self) -> list[LabError]:
        """Let the workers close their sessions. Returns the errors of these."""
        calls = [each.actor.close.remote() for each in self._workers if each.is_ready]
        closed, _ = self._ray.wait(calls, num_returns=len(calls), timeout=_END_SECONDS) if calls else ([], [])
        found: list[LabError | None] = []
        for each in closed:
            with suppress(self._ray.exceptions.RayError):  # its node died, and nothing of it is left
                found.append(pickle.loads(self._ray.get(each)).error)  # noqa: S301
        return [each for each in found if each is not None]


def _with_source(run: Run) -> Run:
    """The run with the text of its file, for the evidence. Without one, a remark there says so."""
    with suppress(OSError, UnicodeDecodeError):
        return replace(run, source=Path(run.scenario.file).read_text(encoding="utf-8"))
    return run


def _with_node(result: ScenarioResult, node: str) -> ScenarioResult:
    """The result, with the node's name in what the node lacks, or in the error."""
    skipped, fault = result.skipped, result.fault
    return replace(
        result,
        skipped=skipped and Skip(f"{skipped.missing} on node {node}", skipped.cure),
        fault=fault and Fault(fault.exit_code, f"node {node}: {fault.message}"),
    )


def _words(run: Run) -> str:
    return f"{run.scenario.file} [{run.engine_on_kernel}]"
