"""The pods of workloads through a whole scenario: those that it begins with, and those of every step's rollouts.

A lab makes the network namespaces of all its pods when it begins. So loading makes every pod that any step needs, as an
entry of ``spec.pods`` that is not present before its time, and the stages of each rollout.

A workload's name among the ``backends`` of a probe stands for the pods that the workload has when the lab sends it.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from proxylab.cluster.objects import Node, Unstructured
from proxylab.cluster.placement import Placed
from proxylab.cluster.rollout import Stage, end, roll, start
from proxylab.cluster.workloads import PodMaker, Replica, Workload
from proxylab.scenario.change import WorkloadChange
from proxylab.scenario.controllers import WORKLOADS
from proxylab.scenario.document import Document, Location
from proxylab.scenario.manifests import DEFAULT_NAMESPACE, Manifests, WorkloadId, read_manifests
from proxylab.scenario.members import Members, with_members
from proxylab.scenario.parts import Parts
from proxylab.scenario.pods import ListeningPort, PodGroup
from proxylab.scenario.problems import Problems, listed
from proxylab.scenario.updates import patched
from proxylab.scenario.words import Position

__all__ = ["Rollouts", "with_workloads"]

Rollouts = tuple[tuple[WorkloadChange, ...], ...]
"""The changes of workloads, by step."""


def with_workloads(parts: Parts, manifests: Manifests, problems: Problems) -> tuple[Parts, Rollouts]:
    """The parts with the pods of all workloads, and the rollouts of each step.

    Args:
        parts: the scenario's well-formed parts, with the Pods and Nodes from manifests.
        manifests: its objects when the lab begins. It gets a note for each workload whose pods find no node.
        problems: takes the mistakes in the changes of workloads.
    """
    if not (manifests.workloads or any(step.change is not None and step.change.workloads for step in parts.steps)):
        return parts, ((),) * len(parts.steps)
    reader = _Reader(parts, manifests, problems)
    rollouts: list[tuple[WorkloadChange, ...]] = []
    members = [reader.members]
    for index, step in enumerate(parts.steps):
        location = parts.location["spec"]["steps"][index]["change"]["workloads"]
        rollouts.append(tuple(reader.after(step.change.workloads, location)) if step.change is not None else ())
        members.append(reader.members)
    return with_members(reader.parts(), *members), tuple(rollouts)


class _Running(Struct):
    """A workload at one time.

    ``begun`` are the pods with which the lab begins.
    """

    maker: PodMaker
    location: Location
    workload: Workload | None
    written: Unstructured | None
    live: tuple[Replica, ...] = ()
    begun: tuple[Replica, ...] = ()


class _Reader:
    """Follows the workloads from step to step."""

    def __init__(self, parts: Parts, manifests: Manifests, problems: Problems) -> None:
        self._parts = parts
        self._problems = problems
        self._nodes = [
            Node(name=name, labels=node.labels, taints=node.taints) for name, node in parts.nodes.items() if node
        ]
        self._running: dict[WorkloadId, _Running] = {}
        for key, found in manifests.workloads.items():
            running = self._of(key, found.location)
            running.written, running.workload = _written(manifests, key), found.workload
            if found.workload is not None:
                running.live = running.begun = running.maker.begin(found.workload)
                manifests.notes.extend(_pending(found.workload, running.live))

    def _of(self, key: WorkloadId, location: Location) -> _Running:
        """The workload of that identity, which may be new."""
        if key not in self._running:
            there = [*self._placed(key[0]), *(each for other in self._running.values() for each in _placed_of(other))]
            self._running[key] = _Running(PodMaker(self._nodes, there), location, None, None)
        return self._running[key]

    def _placed(self, namespace: str) -> Iterator[Placed]:
        for name, pod in self._parts.single_pods.items():
            if pod.namespace == namespace and pod.nodes:
                yield Placed(name, pod.node_of(pod.pod_names.index(name)), pod.labels)

    def after(self, changes: Sequence[WorkloadChange], location: Location) -> Iterator[WorkloadChange]:
        """The changes of one step, with everything that follows from them."""
        for name, change in zip(location.keys, changes, strict=True):
            found = self._changed(change, location[name])
            if found is not None:
                yield found

    def _changed(self, change: WorkloadChange, patch: Location) -> WorkloadChange | None:
        known = [key for key, each in self._running.items() if key[:2] == change.id and each.workload is not None]
        if len(known) > 1:
            what = f"{'/'.join(change.id)} is the name of a {' and of a '.join(key[2] for key in known)}"
            self._problems.add(patch.key, what, allowed="rename one of them")
            return None
        running = self._running[known[0]] if known else None
        if patch.value is None:
            return self._deleted(change, running, patch)
        base = running.location if running is not None else _head(change)
        whole = patched(base, patch)
        count = len(self._problems)
        made = read_manifests([whole], None, self._problems)
        found = {key: each for key, each in made.workloads.items() if key[:2] == change.id}
        if not found or (known and known[0] not in found):
            if len(self._problems) == count:
                what = f"is no workload called {'/'.join(change.id)}"
                self._problems.add(patch.spot, what, allowed=f"allowed: {listed(WORKLOADS)}; an object keeps its name")
            return None
        ((key, wanted),) = found.items()
        if wanted.workload is None:
            return None
        return self._rolled(change, self._of(key, whole), wanted.workload, whole, _written(made, key))

    def _deleted(self, change: WorkloadChange, running: _Running | None, patch: Location) -> WorkloadChange | None:
        if running is None or running.workload is None:
            known = list(dict.fromkeys("/".join(key[:2]).removeprefix("default/") for key in self._running))
            what = f"there is no workload {'/'.join(change.id)} to delete at this step"
            self._problems.add(patch.key, what, allowed=f"existing: {listed(known)}", word=change.name, known=known)
            return None
        stages = tuple(end(running.workload, running.live))
        before, running.written, running.workload, running.live = running.written, None, None, ()
        return replace(change, before=before, stages=stages)

    def _rolled(
        self, change: WorkloadChange, running: _Running, wanted: Workload, whole: Location, written: Unstructured | None
    ) -> WorkloadChange:
        if running.workload is None:
            begun = running.maker.begin(wanted)
            stages = tuple(start(wanted, begun))
        else:
            stages = tuple(roll(wanted, running.live, running.maker))
        before, running.written, running.workload, running.location = running.written, written, wanted, whole
        running.live = _after(running.live, stages)
        for note in _pending(wanted, running.live):
            self._problems.add(whole["spec"].spot, note, allowed="add a node, or change where the pods may run")
        return replace(change, before=before, after=written, stages=stages)

    @property
    def members(self) -> Members:
        """The pods of each workload by its name, or in another namespace by NAMESPACE/NAME."""
        return {
            "/".join(key[:2]).removeprefix(f"{DEFAULT_NAMESPACE}/"): tuple(each.name for each in running.live)
            for key, running in self._running.items()
        }

    def parts(self) -> Parts:
        """The parts with all pods, those that the lab begins with first."""
        pods, in_manifests = dict(self._parts.pods), dict(self._parts.in_manifests)
        for (namespace, _, _), running in self._running.items():
            location = running.location["metadata"]["name"]
            begun = {each.name for each in running.begun}
            for name in sorted(running.maker.made, key=lambda each: each not in begun):
                if name in pods:
                    what = f"another pod is called {name}"
                    self._problems.add(location.spot, what, allowed="nodes, pods and hosts share one name space")
                    continue
                replica = next((each for each in running.begun if each.name == name), running.maker.made[name])
                pods[name] = replace(_entry(replica, namespace, location.key.position), present=name in begun)
                in_manifests["pods", name] = location
        return replace(self._parts, pods=pods, in_manifests=in_manifests)


def _written(manifests: Manifests, key: WorkloadId) -> Unstructured | None:
    namespace, name, kind = key
    found = (
        each for each in manifests.kept.values() if (each.namespace, each.name, each.kind) == (namespace, name, kind)
    )
    return next(found, None)


def _placed_of(running: _Running) -> Iterator[Placed]:
    if running.workload is not None:
        yield from (Placed(running.workload.owner, each.node, each.labels) for each in running.live)


def _head(change: WorkloadChange) -> Location:
    """The base of a patch that adds a workload."""
    metadata = {"namespace": change.namespace, "name": change.name}
    return Location(Document({"metadata": metadata}, Position("", 1, 1), {}))


def _after(live: Sequence[Replica], stages: Sequence[Stage]) -> tuple[Replica, ...]:
    """The pods after some stages."""
    pods: Mapping[str, Replica] = {each.name: each for each in live}
    for stage in stages:
        pods = {name: each for name, each in pods.items() if name not in stage.deleted}
        pods = {**pods, **{each.name: each for each in stage.created}}
    return tuple(pods.values())


def _pending(workload: Workload, live: Sequence[Replica]) -> Iterator[str]:
    if workload.kind != "DaemonSet" and len(live) < workload.replicas:
        missing = workload.replicas - len(live)
        yield f"{workload.owner}: {missing} of {workload.replicas} pods find no node, and would stay Pending"


def _entry(replica: Replica, namespace: str, position: Position) -> PodGroup:
    """The entry of ``spec.pods`` that is equivalent to a pod."""
    template = replica.template
    return PodGroup(
        name=replica.name,
        nodes=(replica.node,),
        namespace=namespace,
        labels=replica.labels,
        ports=tuple(ListeningPort(name=each.name, port=each.port, protocol=each.protocol) for each in template.ports),
        host_network=template.host_network,
        hostname=template.hostname,
        subdomain=template.subdomain,
        position=position,
    )
