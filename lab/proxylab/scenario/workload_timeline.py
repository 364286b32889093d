"""The pods of workloads through a whole scenario: those that it begins with, and those of every step's rollouts.

A lab makes the network namespaces of all its pods when it begins. So loading makes every pod that any step needs, as an
entry of ``spec.pods`` that is not present before its time, and the stages of each rollout.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.cluster.objects import Node, Unstructured
from proxylab.cluster.placement import Placed
from proxylab.cluster.rollout import RolloutStage, end, roll, start
from proxylab.cluster.workloads import PodMaker, Replica, Workload
from proxylab.scenario.applied import without_former
from proxylab.scenario.change import Change, WorkloadChange
from proxylab.scenario.controllers import WORKLOADS
from proxylab.scenario.document import Document, Location, Problems, listed
from proxylab.scenario.manifests import (
    Manifests,
    WorkloadId,
    implied_ports,
    note_on_implied_ports,
    read_manifests,
)
from proxylab.scenario.parts import Parts
from proxylab.scenario.pods import ListeningPort, PodGroup
from proxylab.scenario.services import DEFAULT_NAMESPACE
from proxylab.scenario.stand_for import Members, with_members
from proxylab.scenario.updates import patched
from proxylab.scenario.words import Position

Rollouts = tuple[tuple[WorkloadChange, ...], ...]
"""The changes of workloads, by step."""


def with_workloads(
    parts: Parts, manifests: Manifests, applied: Sequence[Manifests], problems: Problems
) -> tuple[Parts, Rollouts]:
    """The parts with the pods of all workloads, and the rollouts of each step.

    ``applied`` is what each step applies. ``manifests`` gets a note for each workload whose pods find no node.
    """
    commands = parts.document.spec.commands if parts.document is not None else ()
    changes = (step.change.workloads for step in parts.steps if step.change is not None)
    if not (manifests.workloads or commands or any(changes) or any(each.workloads for each in applied)):
        return with_members(parts, ()), ((),) * len(parts.steps)
    reader = _WorkloadReader(parts, manifests, problems)
    rollouts: list[tuple[WorkloadChange, ...]] = []
    members = [reader.members]
    for index, step in enumerate(parts.steps):
        location = parts.location["spec"]["steps"][index]["change"]["workloads"]
        changed = reader.after(step.change, applied[index], location) if step.change is not None else ()
        rollouts.append(tuple(changed))
        reader.enter()
        members.append(reader.members)
    reader.check_commands()
    return with_members(reader.parts, members), tuple(rollouts)


_ROOM: Final = 10
"""How many pods more than it has a standing lab keeps ready for a workload; each costs a network namespace."""


class _Running(Struct):
    """A workload at one time.

    ``entered`` are its pods that have an entry, and ``applied`` is its manifest that was applied last.
    """

    maker: PodMaker
    location: Location
    applied: Location | None
    workload: Workload | None
    written: Unstructured | None
    live: tuple[Replica, ...] = ()
    entered: set[str] = field(default_factory=set)


class _WorkloadReader:
    """Follows the workloads from step to step."""

    def __init__(self, parts: Parts, manifests: Manifests, problems: Problems) -> None:
        self._parts = parts
        self._manifests = manifests
        self._problems = problems
        self._nodes = [
            Node(name=name, labels=node.labels, taints=node.taints)
            for name, node in parts.nodes.items()
            if node and node.present
        ]
        self._running: dict[WorkloadId, _Running] = {}
        self._pods, self._in_manifests = dict(parts.pods), dict(parts.in_manifests)
        for key, found in manifests.workloads.items():
            running = self._of(key, found.location)
            workload = found.workload and self._listening(found.workload)
            running.written, running.workload, running.applied = _written(manifests, key), workload, found.location
            if workload is not None:
                running.live = running.maker.begin(workload)
                manifests.notes.extend(_pending(workload, running.live))
                manifests.notes.extend(_unserved(workload, manifests))
        self.enter(present=True)
        for running in self._running.values():
            if running.workload is not None:
                running.maker.reserve(running.workload, running.live, _most(running.workload, manifests))
        self.enter()

    def _of(self, key: WorkloadId, location: Location) -> _Running:
        """The workload of that identity, which may be new."""
        if key not in self._running:
            there = [
                *self._placed(key.namespace),
                *(each for other in self._running.values() for each in _placed_of(other)),
            ]
            self._running[key] = _Running(PodMaker(self._nodes, there), location, None, None, None)
        return self._running[key]

    def _placed(self, namespace: str) -> Iterator[Placed]:
        for name, pod in self._parts.single_pods.items():
            if pod.namespace == namespace and pod.nodes:
                yield Placed(name, pod.node_of(pod.pod_names.index(name)), pod.labels)

    def after(self, written: Change, applied: Manifests, patches: Location) -> Iterator[WorkloadChange]:
        """The changes of one step, with everything that follows from them."""
        for name, change in zip(patches.keys, written.workloads, strict=True):
            found = self._changed(change, patches[name])
            if found is not None:
                yield found
        for key, wanted in applied.workloads.items():
            found = self._applied(key, wanted.location, applied)
            if found is not None:
                yield found

    def _applied(self, key: WorkloadId, wanted: Location, beside: Manifests) -> WorkloadChange | None:
        """The change by a manifest that is applied ``beside`` others."""
        change, running = WorkloadChange(namespace=key[0], name=key[1]), self._running.get(key)
        base = running.location if running is not None and running.workload is not None else _head(change)
        if running is not None and running.workload is not None and running.applied is not None:
            base = without_former(base, running.applied, wanted)
        whole = patched(base, wanted)
        made = read_manifests([whole], None, self._problems)
        found = made.workloads.get(key)
        if found is None or found.workload is None:
            return None
        self._of(key, whole).applied = wanted
        workload = self._listening(found.workload, beside)
        return self._rolled(change, self._of(key, whole), workload, whole, _written(made, key))

    def _changed(self, change: WorkloadChange, patch: Location) -> WorkloadChange | None:
        known = [key for key, each in self._running.items() if key[:2] == change.id and each.workload is not None]
        if len(known) > 1:
            what = f"{'/'.join(change.id)} is the name of a {' and of a '.join(key.kind for key in known)}"
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
        workload = self._listening(wanted.workload)
        return self._rolled(change, self._of(key, whole), workload, whole, _written(made, key))

    def _listening(self, workload: Workload, beside: Manifests | None = None) -> Workload:
        """The workload; one whose containers declare no port, and run no command, with those of Services.

        They are the Services of the lab's beginning, and those ``beside`` it.
        """
        template = workload.template
        if template.ports or self._runs(workload.namespace, workload.name):
            return workload
        known = (each for each in (self._manifests, beside) if each is not None)
        ports = {
            port: service
            for each in known
            for port, service in implied_ports(each, workload.namespace, template.labels).items()
        }
        if ports and (note := note_on_implied_ports(workload.owner, ports)) not in self._manifests.notes:
            self._manifests.notes.append(note)
        return replace(workload, template=replace(template, ports=tuple(ports)))

    def _deleted(self, change: WorkloadChange, running: _Running | None, patch: Location) -> WorkloadChange | None:
        if running is None or running.workload is None:
            known = list(dict.fromkeys(_short(*key[:2]) for key in self._running))
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
        return {_short(*key[:2]): tuple(each.name for each in running.live) for key, running in self._running.items()}

    def enter(self, *, present: bool = False) -> None:
        """Make entries of the pods that are new since the last call.

        They follow one another in the order in which the lab needs them. So a scenario with fewer steps gives the same
        addresses to the pods that it still has.
        """
        for (namespace, own, kind), running in self._running.items():
            location = running.location["metadata"]["name"]
            for name in [each for each in running.maker.made if each not in running.entered]:
                running.entered.add(name)
                if name in self._pods:
                    what = f"another pod is called {name}"
                    self._problems.add(location.spot, what, allowed="nodes, pods and hosts share one name space")
                    continue
                entry = _entry(running.maker.made[name], namespace, location.key.position)
                commands = running.maker.made[name].template.commands if self._runs(namespace, own) else ()
                self._pods[name] = replace(entry, present=present, owner=f"{kind} {namespace}/{own}", commands=commands)
                self._in_manifests["pods", name] = location

    def _runs(self, namespace: str, name: str) -> bool:
        """Whether the pods of a workload run their own commands."""
        document = self._parts.document
        return document is not None and _short(namespace, name) in document.spec.commands

    def check_commands(self) -> None:
        """Note workloads of ``spec.commands`` that do not exist, or of which only the image knows what it runs."""
        document = self._parts.document
        for index, written in enumerate(document.spec.commands if document is not None else ()):
            spot = self._parts.location["spec"]["commands"][index].spot
            known = {_short(*key[:2]): each for key, each in self._running.items()}
            if written not in known:
                allowed = f"existing: {listed(known)}"
                self._problems.add(spot, f"there is no workload {written}", allowed=allowed, word=written, known=known)
            elif not all(all(each.template.commands) for each in known[written].maker.made.values()):
                what = f"a container of {written} has no command: only its image knows what it runs"
                self._problems.add(spot, what, allowed="write its command into the manifest")

    @property
    def parts(self) -> Parts:
        """The parts with all pods."""
        return replace(self._parts, pods=self._pods, in_manifests=self._in_manifests)


def _short(namespace: str, name: str) -> str:
    """A workload's name as an author writes it."""
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"


def _written(manifests: Manifests, key: WorkloadId) -> Unstructured | None:
    found = (each for each in manifests.kept.values() if (each.namespace, each.name, each.kind) == key)
    return next(found, None)


def _most(workload: Workload, manifests: Manifests) -> int:
    """How many pods a HorizontalPodAutoscaler allows a workload; 0 without one.

    A lab scales no workload by itself, but has the network namespaces of some more pods for ``proxylab apply``.
    """
    autoscalers = (
        each
        for each in manifests.kept.values()
        if each.kind == "HorizontalPodAutoscaler" and each.namespace == workload.namespace
    )
    for spec in (each.content.get("spec") for each in autoscalers):
        target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        most = spec.get("maxReplicas") if isinstance(spec, dict) else None
        wanted = {"kind": workload.kind, "name": workload.name}
        if isinstance(target, dict) and isinstance(most, int) and wanted.items() <= target.items():
            return min(most, workload.replicas + _ROOM)
    return 0


def _placed_of(running: _Running) -> Iterator[Placed]:
    if running.workload is not None:
        yield from (Placed(running.workload.owner, each.node, each.labels) for each in running.live)


def _head(change: WorkloadChange) -> Location:
    """The base of a patch that adds a workload."""
    metadata = {"namespace": change.namespace, "name": change.name}
    return Location(Document({"metadata": metadata}, Position("", 1, 1), {}))


def _after(live: Sequence[Replica], stages: Sequence[RolloutStage]) -> tuple[Replica, ...]:
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


def _unserved(workload: Workload, manifests: Manifests) -> Iterator[str]:
    """A note for each target port of a Service on which the workload's pods do not listen."""
    template = workload.template
    known = {(each.protocol, target) for each in template.ports for target in (each.port, each.name)}
    for (namespace, name), service in manifests.services.items():
        if service is None or namespace != workload.namespace or not service.selector:
            continue
        if service.selector.items() <= template.labels.items():
            for port in (each for each in service.ports if (each.protocol, each.target_port) not in known):
                what = f"Service {name} sends to {port.protocol} port {port.target_port}"
                yield f"{what}, which no container of {workload.owner} declares: nothing answers there"


def _entry(replica: Replica, namespace: str, position: Position) -> PodGroup:
    """The entry of ``spec.pods`` that is equivalent to a pod."""
    template = replica.template
    return PodGroup(
        name=replica.name,
        nodes=(replica.node,),
        namespace=namespace,
        labels=replica.labels,
        ports=tuple(map(ListeningPort.of_api, template.ports)),
        host_network=template.host_network,
        hostname=template.hostname,
        subdomain=template.subdomain,
        position=position,
    )
