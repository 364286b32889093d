"""The changes of a scenario's steps, in order, each checked against the state that the steps before it leave.

A patch applies to a Service as it is at that step, and no change can make a deleted pod ready. So a ``ClusterState``
carries the objects from step to step. After a malformed change the state is unknown; later checks that need it stay
silent. ``proxylab.scenario.streams`` checks what a step waits for and expects.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import without_leading_zeros
from proxylab.scenario.document import Document, Location
from proxylab.scenario.inventory import Inventory, check_readiness
from proxylab.scenario.manifests import Manifests, ServiceId, read_manifests, with_leading_zeros
from proxylab.scenario.model import (
    Change,
    EngineAction,
    LinkChange,
    NodeChange,
    PodChange,
    PodGroup,
    Position,
    ServiceChange,
    SliceChange,
)
from proxylab.scenario.networks import known_network
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.references import check_services, service_id, single_pods
from proxylab.scenario.schema.change import ChangeShape, LinkState, NodeChangeShape, PodChangeShape
from proxylab.scenario.updates import patched, patched_service

__all__ = ["ClusterState", "read_changes"]

_FIRST_DEVICE: Final = "eth0"
_Patcher = Callable[[Location, Location], Location]


class ClusterState(Struct, frozen=True, kw_only=True):
    """The cluster's state after a step's change.

    ``pods`` are all single pods, present or not; ``None`` if they are unknown. ``running`` are the nodes with a running
    engine, ``cut`` the cut links by network namespace and device.
    """

    change: Change
    manifests: Manifests
    pods: Mapping[str, PodGroup] | None
    running: frozenset[str]
    cut: frozenset[tuple[str, str]] = frozenset()


def read_changes(
    parts: Parts, inventory: Inventory, manifests: Manifests, problems: Problems
) -> tuple[ClusterState, ...]:
    """The state after each step.

    Args:
        parts: the scenario's well-formed parts.
        inventory: its names.
        manifests: its objects when the lab begins.
        problems: takes the mistakes in the changes.
    """
    now = ClusterState(
        change=Change(), manifests=manifests, pods=single_pods(parts), running=frozenset(inventory.nodes)
    )
    states: list[ClusterState] = []
    for index, step in enumerate(parts.steps):
        location = parts.location["spec"]["steps"][index]["change"]
        if step.change is None:
            now = replace(now, change=Change(), manifests=replace(now.manifests, complete=False), pods=None)
        else:
            now = _Reader(parts, inventory, location, problems).after(now, step.change)
        states.append(now)
    return tuple(states)


class _Reader(Struct, frozen=True):
    """Reads the change at ``location``."""

    parts: Parts
    inventory: Inventory
    location: Location
    problems: Problems

    def after(self, now: ClusterState, shape: ChangeShape) -> ClusterState:
        services, slices, manifests = self._objects(now.manifests, shape)
        changes, pods = self._pods(now.pods, shape.pods)
        engines, running = self._engines(now.running, shape.engines)
        links, cut = self._links(now.cut, shape.links)
        nodes = {name: self._node(name, each) for name, each in shape.nodes.items()}
        change = Change(services=services, slices=slices, pods=changes, nodes=nodes, engines=engines, links=links)
        return ClusterState(change=change, manifests=manifests, pods=pods, running=running, cut=cut)

    def _objects(
        self, manifests: Manifests, shape: ChangeShape
    ) -> tuple[tuple[ServiceChange, ...], tuple[SliceChange, ...], Manifests]:
        """Apply the patches of Services and slices, and read each result like any manifest."""
        services, locations = dict(manifests.services), dict(manifests.locations)
        slices, slice_spots, sliced = dict(manifests.slices), dict(manifests.slice_spots), set(manifests.sliced)
        service_changes, slice_changes = [], []
        for key, location in self._patches("services", shape.services, manifests.complete, services, "Service"):
            services.pop(key, None)
            if location.value is not None:
                made = self._patched("Service", key, locations.get(key), location, patched_service)
                services[key] = made.services.get(key)
                locations |= made.locations if key in made.locations else {}
            service_changes.append(ServiceChange(namespace=key[0], name=key[1], service=services.get(key)))
        for key, location in self._patches(
            "endpointSlices", shape.endpoint_slices, manifests.complete, slices, "EndpointSlice"
        ):
            slices.pop(key, None)
            if location.value is not None:
                made = self._patched("EndpointSlice", key, slice_spots.get(key), location, patched)
                slices.update(made.slices)
                slice_spots.update(made.slice_spots)
                sliced |= made.sliced
            slice_changes.append(SliceChange(namespace=key[0], name=key[1], slice=slices.get(key)))
        after = replace(
            manifests,
            services=services,
            locations=locations,
            slices=slices,
            slice_spots=slice_spots,
            sliced=sliced,
        )
        if service_changes:
            check_services(after, self.problems)
        return tuple(service_changes), tuple(slice_changes), after

    def _patches(
        self, key: str, patches: Mapping[str, object], complete: bool, there: Mapping[ServiceId, object], kind: str
    ) -> Iterator[tuple[ServiceId, Location]]:
        """Every patch, with the name of its object."""
        for name, patch in patches.items():
            location, found = self.location[key][name], service_id(name, None)
            if patch is None and complete and found not in there:
                known = [each if namespace == "default" else f"{namespace}/{each}" for namespace, each in there]
                what = f"there is no {kind} {'/'.join(found)} to delete at this step"
                self.problems.add(location.key, what, allowed=f"existing: {listed(known)}", word=name, known=known)
            else:
                yield found, location

    def _patched(
        self,
        kind: str,
        key: ServiceId,
        base: Location | None,
        patch: Location,
        patcher: _Patcher,
    ) -> Manifests:
        before = len(self.problems)
        base = base or _head(kind, key)
        whole = patcher(base, patch)
        self._refuse_leading_zeros(base, whole)
        made = read_manifests([whole], known_network(self.parts), self.problems)
        named = made.services if kind == "Service" else made.slice_spots
        if key not in named and len(self.problems) == before:
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
        self, pods: Mapping[str, PodGroup] | None, shapes: Mapping[str, PodChangeShape | None]
    ) -> tuple[dict[str, PodChange], Mapping[str, PodGroup] | None]:
        changes: dict[str, PodChange] = {}
        after = dict(pods or {})
        declared = single_pods(self.parts)
        inventory, known = self.inventory, (*self.parts.pods, *self.inventory.pods)
        for name, shape in shapes.items():
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
                changes[single] = _pod_change(shape)
                if single in after:
                    after[single] = self._pod(single, after[single], declared[single], changes[single], location)
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

    def _node(self, name: str, shape: NodeChangeShape | None) -> NodeChange:
        self._check_node(name, self.location["nodes"][name])
        if shape is None:
            return NodeChange(present=False)
        return NodeChange(
            present=shape.present,
            labels=shape.labels,
            taints=None if shape.taints is None else tuple(shape.taints),
            terminating=shape.terminating,
            sysctls=shape.sysctls,
        )

    def _check_node(self, name: str, location: Location) -> None:
        if name not in self.inventory.nodes:
            self.inventory.refuse(location.key, name, "a node", self.inventory.nodes, self.problems)

    def _engines(
        self, running: frozenset[str], actions: Mapping[str, EngineAction]
    ) -> tuple[dict[str, EngineAction], frozenset[str]]:
        after = set(running)
        each = dict.fromkeys(self.inventory.nodes, actions[""]) if "" in actions else dict(actions)
        for node, action in each.items():
            location = self.location["engines"] if "" in actions else self.location["engines"][node]
            if node not in self.inventory.nodes:
                self._check_node(node, location)
                continue
            if action is EngineAction.START and node in running:
                self.problems.add(location.spot, f"the engine of {node} runs at this step", allowed="allowed: restart")
            elif action.ends and node not in running:
                what = f"the engine of {node} does not run at this step"
                self.problems.add(location.spot, what, allowed="allowed: start, flush")
            if action.begins:
                after.add(node)
            elif action.ends:
                after.discard(node)
        return each, frozenset(after)

    def _links(
        self, cut: frozenset[tuple[str, str]], states: Mapping[str, LinkState]
    ) -> tuple[tuple[LinkChange, ...], frozenset[tuple[str, str]]]:
        made, after = [], set(cut)
        for written, state in states.items():
            location = self.location["links"][written]
            name, _, device = written.partition("/")
            link = (name, device or _FIRST_DEVICE)
            if not self._has_link(name, link[1], location):
                continue
            if (link in cut) is (state is LinkState.CUT):
                self.problems.add(
                    location.spot,
                    f"the link of {written} is {'cut' if link in cut else 'not cut'} at this step",
                    allowed="remove the key",
                )
            after = after | {link} if state is LinkState.CUT else after - {link}
            made.append(LinkChange(netns_name=name, device=link[1], up=state is LinkState.MENDED))
        return tuple(made), frozenset(after)

    def _has_link(self, name: str, device: str, location: Location) -> bool:
        inventory = self.inventory
        if name not in inventory.senders:
            inventory.refuse(location.key, name, "a node, pod or host", inventory.senders, self.problems)
            return False
        node, pod = self.parts.nodes.get(name), self.parts.pods.get(inventory.pods.get(name, ""))
        if pod is not None and (pod.host_network or pod.shared_netns):
            self.problems.add(location.key, f"{name} has no link of its own", allowed="name its node")
            return False
        devices = [_FIRST_DEVICE, *(each.device for each in (node.uplinks if node is not None else ()))]
        if device not in devices:
            what, allowed = f"{name} has no link {device}", f"allowed: {listed(devices)}"
            self.problems.add(location.key, what, allowed=allowed, word=device, known=devices)
        return device in devices


_KEEPS: Final = "an object keeps its kind, namespace and name"
_VERSIONS: Final = {"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"}


def _head(kind: str, key: ServiceId) -> Location:
    """The base of a patch that adds a new object."""
    metadata = {"namespace": key[0], "name": key[1]}
    value = {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata}
    return Location(Document(value, Position("", 1, 1), {}))


def _pod_change(shape: PodChangeShape | None) -> PodChange:
    if shape is None:
        return PodChange(present=False)
    return PodChange(
        present=shape.present,
        ready=shape.ready,
        serving=shape.serving,
        terminating=shape.terminating,
        labels=shape.labels,
    )
