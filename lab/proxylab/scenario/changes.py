"""The changes of a scenario's steps, in order, each checked against the state that the steps before it leave.

A patch applies to a Service as it is at that step, and no change can make a deleted pod ready. So a ``ClusterState``
carries the objects from step to step. After a malformed change the state is unknown; later checks that need it stay
silent. ``proxylab.scenario.streams`` checks what a step waits for and expects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import without_leading_zeros
from proxylab.scenario.applied import without_former
from proxylab.scenario.change import (
    Change,
    LinkChange,
    LoadBalancerChange,
    PodChange,
    ServiceChange,
    SliceChange,
    WorkloadChange,
)
from proxylab.scenario.document import Document, Location, Problems, listed, shown
from proxylab.scenario.inventory import Inventory, check_readiness
from proxylab.scenario.manifests import Manifests, ServiceId, check_services, read_manifests, with_leading_zeros
from proxylab.scenario.network import UPLINK
from proxylab.scenario.networks import known_network
from proxylab.scenario.node_engines import EngineAction, EngineChange
from proxylab.scenario.parts import Parts
from proxylab.scenario.patched_engines import PatchedEngines
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.updates import patched, patched_service
from proxylab.scenario.words import Position
from proxylab.scenario.workload_timeline import Rollouts

_Links = frozenset[tuple[str, str]]
_Patcher = Callable[[Location, Location], Location]


class _EnginesAfter(Struct, frozen=True):
    """What a step does to the engine of each node, the nodes that then have one, and their patched configurations."""

    changes: Mapping[str, EngineChange]
    running: frozenset[str]
    patched: PatchedEngines


class ClusterState(Struct, frozen=True, kw_only=True):
    """The cluster's state after a step's change.

    ``pods`` are all single pods, present or not; ``None`` if they are unknown. ``running`` are the nodes with a running
    engine. ``cut`` are the cut links by network namespace and device, ``impaired`` those with netem. ``engines`` have
    the configurations that steps patch. ``announcers`` are the nodes that answer for the pools of load balancers,
    and ``paused`` those whose engine is paused.
    """

    change: Change
    manifests: Manifests
    pods: Mapping[str, PodGroup] | None
    running: frozenset[str]
    cut: frozenset[tuple[str, str]] = frozenset()
    impaired: frozenset[tuple[str, str]] = frozenset()
    engines: PatchedEngines = PatchedEngines()
    announcers: Mapping[str, str] = {}
    paused: frozenset[str] = frozenset()


def read_changes(
    parts: Parts,
    inventory: Inventory,
    manifests: Manifests,
    applied: Sequence[Manifests],
    rollouts: Rollouts,
    engines: PatchedEngines,
    problems: Problems,
) -> tuple[ClusterState, ...]:
    """The state after each step.

    ``manifests`` and ``engines`` are those when the lab begins, ``applied`` is what each step applies, and ``rollouts``
    are the changes of its workloads by step.
    """
    former = manifests
    now = ClusterState(
        change=Change(),
        manifests=manifests,
        pods=parts.single_pods,
        running=frozenset(inventory.nodes),
        impaired=frozenset(_impaired(parts)),
        engines=engines,
        announcers={
            name: each.announced_by for name, each in parts.load_balancers.items() if each and each.announced_by
        },
    )
    states: list[ClusterState] = []
    for index, step in enumerate(parts.steps):
        location = parts.location["spec"]["steps"][index]["change"]
        if step.change is None:
            now = replace(now, change=Change(), manifests=replace(now.manifests, complete=False), pods=None)
        else:
            written = replace(step.change, workloads=rollouts[index])
            reader = _ChangeReader(parts, inventory, location, applied[index], former, problems)
            now = reader.after(now, written)
            former = reader.applied_by_now
        states.append(now)
    return tuple(states)


class _ChangeReader(Struct, frozen=True):
    """Reads the change at ``location``, which applies ``applied`` where ``former`` was applied before."""

    parts: Parts
    inventory: Inventory
    location: Location
    applied: Manifests
    former: Manifests
    problems: Problems

    @property
    def applied_by_now(self) -> Manifests:
        """What was applied last of each object, this step included: the places of Services and slices alone."""
        former, now = self.former, self.applied
        return Manifests(
            locations={**former.locations, **now.locations}, slice_spots={**former.slice_spots, **now.slice_spots}
        )

    def after(self, now: ClusterState, written: Change) -> ClusterState:
        manifests = self._objects(now.manifests, written)
        changes, pods = self._pods(now.pods, written.pods)
        if pods is not None:
            pods = _after_rollouts(pods, written.workloads)
        engines = self._engines(now, written.engines)
        cut, impaired = self._links(now.cut, now.impaired, written.links)
        for name in written.nodes:
            self._check_node(name, self.location["nodes"][name])
        self._check_announcers(now.announcers, written.load_balancers)
        change = replace(
            written,
            services=tuple(
                ServiceChange(namespace=key[0], name=key[1], service=manifests.services.get(key))
                for key in (*(each.id for each in written.services), *self.applied.services)
            ),
            slices=tuple(
                SliceChange(namespace=key[0], name=key[1], slice=manifests.slices.get(key))
                for key in (*(each.id for each in written.slices), *self.applied.slice_spots)
            ),
            pods=changes,
            engines=engines.changes,
        )
        if written.kubectl:  # which may make anything of the objects
            manifests, pods = replace(manifests, complete=False), None
        return ClusterState(
            change=change,
            manifests=manifests,
            pods=pods,
            running=engines.running,
            cut=cut,
            impaired=impaired,
            engines=engines.patched,
            announcers={**now.announcers, **{name: each.announced_by for name, each in written.load_balancers.items()}},
            paused=_paused_after(now.paused, engines.changes),
        )

    def _objects(self, before: Manifests, written: Change) -> Manifests:
        """Apply the patches of Services and slices, and read each result like any manifest."""
        after = replace(
            before,
            services={**before.services},
            locations={**before.locations},
            slices={**before.slices},
            slice_spots={**before.slice_spots},
            sliced={*before.sliced},
        )
        for key, patch in self._patches("services", "Service", written.services, after.services, after):
            after.services.pop(key, None)
            if patch.value is not None:
                made = self._patched("Service", key, after.locations.get(key), patch, patched_service)
                after.services[key] = made.services.get(key)
                after.locations |= made.locations if key in made.locations else {}
        for key, patch in self._patches("endpointSlices", "EndpointSlice", written.slices, after.slices, after):
            after.slices.pop(key, None)
            if patch.value is not None:
                made = self._patched("EndpointSlice", key, after.slice_spots.get(key), patch, patched)
                after.slices |= made.slices
                after.slice_spots |= made.slice_spots
                after.sliced |= made.sliced
        self._apply(after)
        if written.services or self.applied.services:
            check_services(after, self.problems)
        return after

    def _apply(self, after: Manifests) -> None:
        """Apply manifests to the objects in ``after``, and read each result like any manifest."""
        for kind, applied in (("Service", self.applied.locations), ("EndpointSlice", self.applied.slice_spots)):
            is_service = kind == "Service"
            there: Mapping[ServiceId, object] = after.services if is_service else after.slices
            locations = after.locations if is_service else after.slice_spots
            former = self.former.locations if is_service else self.former.slice_spots
            for key, wanted in applied.items():
                base = locations.get(key) if key in there else None
                if base is not None and key in former:
                    base = without_former(base, former[key], wanted)
                made = self._patched(kind, key, base, wanted, patched_service if is_service else patched)
                if is_service:
                    after.services[key] = made.services.get(key)
                    after.locations |= made.locations
                else:
                    after.slices |= made.slices
                    after.slice_spots |= made.slice_spots
                    after.sliced |= made.sliced

    def _patches(
        self,
        alias: str,
        kind: str,
        changes: Sequence[ServiceChange | SliceChange],
        there: Mapping[ServiceId, object],
        manifests: Manifests,
    ) -> Iterator[tuple[ServiceId, Location]]:
        """Every patch, with the name of its object."""
        for name, change in zip(self.location[alias].keys, changes, strict=True):
            location = self.location[alias][name]
            if location.value is None and manifests.complete and change.id not in there:
                known = [each if namespace == "default" else f"{namespace}/{each}" for namespace, each in there]
                what = f"there is no {kind} {'/'.join(change.id)} to delete at this step"
                self.problems.add(location.key, what, allowed=f"existing: {listed(known)}", word=str(name), known=known)
            else:
                yield change.id, location

    def _patched(
        self, kind: str, key: ServiceId, base: Location | None, patch: Location, patcher: _Patcher
    ) -> Manifests:
        count = len(self.problems)
        base = base or _head(kind, key)
        whole = patcher(base, patch)
        self._refuse_leading_zeros(base, whole)
        made = read_manifests([whole], known_network(self.parts), self.problems)
        named = made.services if kind == "Service" else made.slice_spots
        if key not in named and len(self.problems) == count:
            self.problems.add(patch.spot, f"turns {kind} {'/'.join(key)} into another object", allowed=_KEEPS)
        return made

    def _refuse_leading_zeros(self, base: Location, whole: Location) -> None:
        """Refuse new addresses with leading zeros, as the API server does since 1.36.

        It compares a Service's addresses one by one, and the endpoints of a slice as a whole.
        """
        kept = (
            {each.value for each in with_leading_zeros(base)}
            if whole["endpoints"].value == base["endpoints"].value
            else set()
        )
        for each in with_leading_zeros(whole):
            if each.value not in kept:
                allowed = f"write {without_leading_zeros(str(each.value))}"
                self.problems.add(each.spot, f"{each.value} must not have leading 0s", allowed=allowed)

    def _pods(
        self, pods: Mapping[str, PodGroup] | None, written: Mapping[str, PodChange]
    ) -> tuple[dict[str, PodChange], Mapping[str, PodGroup] | None]:
        changes: dict[str, PodChange] = {}
        after = dict(pods or {})
        declared = self.parts.single_pods
        inventory, known = self.inventory, (*self.parts.pods, *self.inventory.pods)
        for name, change in written.items():
            location = self.location["pods"][name]
            singles = inventory.groups.get(name) or ((name,) if name in inventory.pods else ())
            if not singles and not inventory.is_doubtful(name):
                what = f"{shown(name)} is neither an entry of spec.pods nor a pod of one"
                self.problems.add(
                    location.key, what, allowed=f"allowed: {listed(dict.fromkeys(known))}", word=name, known=known
                )
            for single in singles:
                if single in changes:
                    self.problems.add(
                        location.key, f"changes {single} twice", allowed="name its entry, or the pod alone"
                    )
                    continue
                changes[single] = change
                if single in after:
                    after[single] = self._pod(single, after[single], declared[single], change, location)
        return changes, after if pods is not None else None

    def _pod(self, name: str, pod: PodGroup, declared: PodGroup, change: PodChange, location: Location) -> PodGroup:
        """The pod after the change. A pod that comes back is as the scenario declares it."""
        if not pod.present and not change.present:
            what = f"the pod {name} does not exist at this step"
            self.problems.add(location.key, what, allowed="present: true brings it back")
        if change.present and not pod.present:
            pod = declared
        said = {key: getattr(change, key) for key in ("present", "ready", "serving", "terminating")}
        labels = {**pod.labels, **change.labels}
        made = replace(
            pod,
            **{key: value for key, value in said.items() if value is not None},
            labels={key: value for key, value in labels.items() if value is not None},
        )
        if change.serving is not None:
            check_readiness(made, location, self.problems)
        return made

    def _check_node(self, name: str, location: Location) -> None:
        if name not in self.inventory.nodes:
            self.inventory.refuse(location.key, name, "a node", self.inventory.nodes, self.problems)

    def _check_announcers(self, announcers: Mapping[str, str], changes: Mapping[str, LoadBalancerChange]) -> None:
        known = tuple(announcers)
        for name, change in changes.items():
            location = self.location["loadBalancers"][name]
            if name not in self.parts.load_balancers or name not in known:
                what = f"no load balancer with announcedBy is called {shown(name)}"
                self.problems.add(location.key, what, allowed=f"allowed: {listed(known)}", word=name, known=known)
            elif change.announced_by not in self.inventory.nodes:
                spot = location["announcedBy"].spot
                self.inventory.refuse(spot, change.announced_by, "a node", self.inventory.nodes, self.problems)
            elif change.announced_by == announcers[name]:
                what = f"{change.announced_by} announces {name} already at this step"
                self.problems.add(location["announcedBy"].spot, what, allowed="name another node")

    def _engines(self, now: ClusterState, changes: Mapping[str, EngineChange]) -> _EnginesAfter:
        running, engines, after = now.running, now.engines, set(now.running)
        each = dict.fromkeys(self.inventory.nodes, changes[""]) if "" in changes else dict(changes)
        for node, change in each.items():
            location = self.location["engines"] if "" in changes else self.location["engines"][node]
            if node not in self.inventory.nodes:
                self._check_node(node, location)
                continue
            self._check_pause(node, change.action, now, location)
            if change.action is EngineAction.START and node in running:
                self.problems.add(location.spot, f"the engine of {node} runs at this step", allowed="allowed: restart")
            elif change.ends and node not in running:
                what = f"the engine of {node} does not run at this step"
                self.problems.add(location.spot, what, allowed="allowed: start, flush")
            if (change.engine or change.configuration) and not change.begins:
                what = f"{change.action} starts no engine that would read what else is said"
                self.problems.add(location["action"].spot, what, allowed="allowed: start, restart")
            if change.configuration:
                engines, settings = engines.patched(node, location["configuration"], self.problems)
                each[node] = replace(change, settings=settings)
            if change.begins:
                after.add(node)
            elif change.ends:
                after.discard(node)
        return _EnginesAfter(each, frozenset(after), engines)

    def _check_pause(self, node: str, action: EngineAction, now: ClusterState, location: Location) -> None:
        """Note a pause or resumption of an engine that is not in the state for it, and a flush of a paused one."""
        is_paused, runs = node in now.paused, node in now.running
        match action:
            case EngineAction.PAUSE if is_paused or not runs:
                what = f"the engine of {node} {'is paused' if is_paused else 'does not run'} at this step"
                self.problems.add(location.spot, what, allowed="allowed: resume" if is_paused else "allowed: start")
            case EngineAction.RESUME if not is_paused:
                self.problems.add(location.spot, f"the engine of {node} is not paused at this step", allowed="pause it")
            case EngineAction.FLUSH if is_paused:
                what = f"the engine of {node} is paused at this step"
                self.problems.add(location.spot, what, allowed="flush its rules before it is paused, or resume it")

    def _links(self, cut: _Links, impaired: _Links, changes: Sequence[LinkChange]) -> tuple[_Links, _Links]:
        for written, change in zip(self.location["links"].keys, changes, strict=True):
            location = self.location["links"][written]
            link = (change.netns_name, change.device)
            if not self._has_link(*link, location):
                continue
            mends = change.up and change.netem is None
            if mends is not (link in cut or (mends and link in impaired)):
                state = "cut" if link in cut else "not cut"
                allowed = "remove the key" if change.netem is None else "mend the link in a step before"
                self.problems.add(location.spot, f"the link of {written} is {state} at this step", allowed=allowed)
            cut = cut - {link} if change.up else cut | {link}
            impaired = impaired - {link} if change.netem is None else impaired | {link}
        return cut, impaired

    def _has_link(self, name: str, device: str, location: Location) -> bool:
        inventory = self.inventory
        if name not in inventory.senders:
            inventory.refuse(location.key, name, "a node, pod or host", inventory.senders, self.problems)
            return False
        node, pod = self.parts.nodes.get(name), self.parts.pods.get(inventory.pods.get(name, ""))
        if pod is not None and (pod.host_network or pod.shared_netns):
            self.problems.add(location.key, f"{name} has no link of its own", allowed="name its node")
            return False
        devices = [UPLINK, *(each.device for each in (node.uplinks if node is not None else ()))]
        if device not in devices:
            what, allowed = f"{name} has no link {device}", f"allowed: {listed(devices)}"
            self.problems.add(location.key, what, allowed=allowed, word=device, known=devices)
        return device in devices


def _paused_after(paused: frozenset[str], changes: Mapping[str, EngineChange]) -> frozenset[str]:
    """The nodes whose engine is paused after the changes. One that ends, or begins anew, is not."""
    begun = {node for node, each in changes.items() if each.action is EngineAction.PAUSE}
    ended = {node for node, each in changes.items() if each.ends or each.begins or each.action is EngineAction.RESUME}
    return paused - ended | begun


def _impaired(parts: Parts) -> Iterator[tuple[str, str]]:
    """The links with netem when the lab begins."""
    machines = {**parts.nodes, **parts.single_pods, **parts.hosts}
    yield from ((name, UPLINK) for name, each in machines.items() if each is not None and each.netem is not None)
    for node in filter(None, parts.nodes.values()):
        yield from ((node.name, each.device) for each in node.uplinks if each.netem is not None)


def _after_rollouts(pods: Mapping[str, PodGroup], changes: Sequence[WorkloadChange]) -> Mapping[str, PodGroup]:
    """The pods after all stages of the changes."""
    after = dict(pods)
    for stage in (stage for change in changes for stage in change.stages):
        for each in (each for each in stage.created if each.name in after):
            after[each.name] = replace(after[each.name], present=True, labels=each.labels)
        for name in (name for name in stage.deleted if name in after):
            after[name] = replace(after[name], present=False)
    return after


_KEEPS: Final = "an object keeps its kind, namespace and name"
_VERSIONS: Final = {"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"}


def _head(kind: str, key: ServiceId) -> Location:
    """The base of a patch that adds a new object."""
    metadata = {"namespace": key[0], "name": key[1]}
    value = {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata}
    return Location(Document(value, Position("", 1, 1), {}))
