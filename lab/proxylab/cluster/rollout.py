"""How a changed workload gets from its pods to those that it wants: ``roll``, as its controller in Kubernetes does.

A rollout is a sequence of stages. Each is one change of pods at the API server, and begins when all proxies have
followed the one before. So a rollout needs no clock, except where the template has one: a readiness probe that
succeeds later, and ``minReadySeconds``.

A pod with a grace period first terminates: its endpoints are serving, but not ready. It is deleted in the next stage,
once the proxies know, or when its grace period is over. A pod without a grace period is gone at once.

Sources: pkg/controller/deployment (rolling.go, recreate.go, util/deployment_util.go), pkg/controller/statefulset
(stateful_set_control.go), pkg/controller/daemon (update.go), and for the order in which pods go
pkg/controller/controller_utils.go (ActivePodsWithRanks).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor

from proxylab.cluster.workloads import PodMaker, Replica, Workload
from proxylab.encoding import Record

_Move = Callable[[Workload, Sequence[Replica]], Iterator["RolloutStage"]]


class RolloutStage(Record, frozen=True, kw_only=True):
    """One change of pods. The others are names.

    Attributes:
        created: new pods; those whose readiness probes need time are not ready yet.
        ready: pods whose readiness probes succeed from now on.
        terminating: pods that begin to terminate; they serve on.
        deleted: pods that are gone.
        delay: how long to wait before this stage, in milliseconds.
        grace: within which time proxies must have followed, before the pods that terminate end; in milliseconds.
        killed: whether the deleted pods stop to answer before the API server says so.
    """

    created: tuple[Replica, ...] = ()
    ready: tuple[str, ...] = ()
    terminating: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    delay: int = 0
    grace: int | None = None
    killed: bool = False


def start(workload: Workload, pods: Sequence[Replica]) -> Iterator[RolloutStage]:
    """The stages in which pods of a workload begin together."""
    return _turn(workload, pods, ())


def end(workload: Workload, pods: Sequence[Replica]) -> Iterator[RolloutStage]:
    """The stages in which pods of a workload end together."""
    return _turn(workload, (), pods)


def roll(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """The stages after which a workload has the pods that it wants. ``live`` are its pods, all of them ready."""
    match workload.kind, workload.strategy:
        case "StatefulSet", _:
            return _stateful(workload, live, maker)
        case "DaemonSet", _:
            return _daemon(workload, live, maker)
        case "Deployment", "Recreate":
            return _recreated(workload, live, maker)
        case "Deployment", _:
            return _rolling(workload, live, maker)
        case _:
            return _scaled(workload, live, maker)


def _turn(workload: Workload, begun: Sequence[Replica], ended: Sequence[Replica]) -> Iterator[RolloutStage]:
    """Some pods begin, others end at the same time; and what follows from that."""
    names = tuple(each.name for each in ended)
    graces = [each.template.grace for each in ended]
    graceful = min(graces, default=0) > 0
    if begun or ended:
        yield RolloutStage(
            created=tuple(begun),
            terminating=names if graceful else (),
            deleted=() if graceful else names,
            grace=min(graces) if graceful else None,
            killed=bool(ended) and not graceful,
        )
    if graceful:
        yield RolloutStage(deleted=names)
    waiting = [each for each in begun if each.template.ready_after]
    if waiting:
        yield RolloutStage(
            ready=tuple(each.name for each in waiting), delay=max(each.template.ready_after for each in waiting)
        )
    if begun and workload.min_ready:
        yield RolloutStage(delay=workload.min_ready)


def _rolling(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """A Deployment's update with ``maxSurge`` and ``maxUnavailable``, and its scaling."""
    wanted = workload.replicas
    surge, missing = _bounds(workload)
    old = [each for each in live if each.revision != workload.template.revision]
    new = [each for each in live if each.revision == workload.template.revision]
    while True:
        excess = _to_end(new, len(new) - wanted)
        new = [each for each in new if each not in excess]
        ended = _to_end(old, len(old) + len(new) - (wanted - missing))
        begun = maker.more(workload, [*old, *new], min(wanted - len(new), wanted + surge - len(old) - len(new)))
        old = [each for each in old if each not in ended]
        new += begun
        yield from _turn(workload, begun, [*excess, *ended])
        if not begun and not ended:
            return


def _bounds(workload: Workload) -> tuple[int, int]:
    """``maxSurge`` rounded up and ``maxUnavailable`` rounded down; both cannot be 0 (ResolveFenceposts)."""
    surge = _number(workload.max_surge, workload.replicas, up=True)
    missing = _number(workload.max_unavailable, workload.replicas, up=False)
    return surge, missing or (0 if surge else 1)


def _number(value: int | str, whole: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * whole / 100
    return ceil(share) if up else floor(share)


def _to_end(pods: Sequence[Replica], count: int) -> list[Replica]:
    """The pods that end first: those that share their node with most others, and of them the newest."""
    together = Counter(each.node for each in pods)
    ranked = sorted(pods, key=lambda each: (-together[each.node], -each.ordinal))
    return ranked[: max(0, count)]


def _recreated(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """All old pods end before the first new one begins."""
    old = [each for each in live if each.revision != workload.template.revision]
    if not old:
        yield from _scaled(workload, live, maker)
        return
    yield from end(workload, live)
    yield from start(workload, maker.more(workload, (), workload.replicas))


def _scaled(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """More or fewer pods; those that stay keep their template."""
    ended = _to_end(live, len(live) - workload.replicas)
    yield from _turn(workload, maker.more(workload, live, workload.replicas - len(live)), ended)


def _stateful(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """One pod after the other: new ones by ascending ordinals, then the end of surplus ones, then the update."""
    beyond = workload.first + workload.replicas
    surplus = sorted((each for each in live if not workload.first <= each.ordinal < beyond), key=_ordinal, reverse=True)
    there = [each for each in live if each not in surplus]
    begun = maker.more(workload, there, workload.replicas - len(there))
    yield from _each(start, workload, begun)
    yield from _each(end, workload, surplus)
    if workload.strategy == "OnDelete":
        return
    for each in sorted(there, key=_ordinal, reverse=True):
        if each.revision != workload.template.revision and each.ordinal >= workload.partition:
            yield from end(workload, [each])
            yield from start(workload, maker.again(workload, [each]))


def _each(move: _Move, workload: Workload, pods: Sequence[Replica]) -> Iterator[RolloutStage]:
    """Pods begin or end one after the other, or together if the workload manages them in parallel."""
    for group in [pods] if workload.parallel else [[each] for each in pods]:
        yield from move(workload, group)


def _ordinal(pod: Replica) -> int:
    return pod.ordinal


def _daemon(workload: Workload, live: Sequence[Replica], maker: PodMaker) -> Iterator[RolloutStage]:
    """Some nodes after the other. With ``maxSurge``, a new pod of a node is ready before the old one ends."""
    old = [each for each in live if each.revision != workload.template.revision]
    if workload.strategy == "OnDelete" or not old:
        return
    surge, missing = (
        _number(workload.max_surge, len(live), up=True),
        _number(workload.max_unavailable, len(live), up=True),
    )
    size = surge or missing or 1
    for group in (old[first : first + size] for first in range(0, len(old), size)):
        others = [each for each in live if each not in group]
        if surge:
            yield from start(workload, maker.more(workload, others, len(group)))
            yield from end(workload, group)
        else:
            yield from end(workload, group)
            yield from start(workload, maker.more(workload, others, len(group)))
