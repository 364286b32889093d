"""The timeline of the cluster: its state at the API server when the lab begins, and after each step.

A step holds its changes, and a changed Service is as its author writes it. ``keep_allocated`` keeps what the API server
has allocated before; these values count as requested when the rest is allocated. The timeline derives slices anew after
every change, as their controller does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.cluster.allocate import Pool, allocate_services, give_ingress, keep_allocated
from proxylab.cluster.kube_dns import coredns, kube_dns
from proxylab.cluster.objects import (
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    Service,
    ServiceCIDR,
    Unstructured,
)
from proxylab.cluster.rollout import RolloutStage
from proxylab.cluster.slices import derive_slices
from proxylab.errors import ScenarioError
from proxylab.plan.addresses import AddressPlan, allocate_addresses
from proxylab.plan.model import Plan
from proxylab.plan.name_servers import has_own_server
from proxylab.plan.outages import Links
from proxylab.plan.renumbering import Moves, moved, moves_of, renumbered
from proxylab.scenario.change import NodeChange, PodChange, ServiceChange, SliceChange
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Position

Named = TypeVar("Named", Node, Pod)


class ClusterMoment(Struct, frozen=True, kw_only=True):
    """The objects of the API server at one time.

    Attributes:
        services: with everything allocated, in the order of their creation.
        slices: the author's EndpointSlices.
        further: the objects that the API only serves.
        links: the links that steps have cut.
        announcers: for each load balancer that a node announces, the node that neighbours know for its pool.
        unheard: the load balancers of which neighbours may know a node that announces them no more.
        hidden: the lab's own pods, which no report shows.
        declared: every pod of the scenario as it first is, by its name, also those that are not there now; a pod on its
            node's network with the addresses that the node has now.
        machines: every node as it first is, with the addresses that it has now.
        moves: for each address that a node had when the lab began and has no more, the one in its place.
    """

    scenario: Scenario
    declared: Mapping[str, Pod]
    machines: Mapping[str, Node]
    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    services: tuple[Service, ...]
    slices: Mapping[ObjectKey, EndpointSlice]
    further: Mapping[ObjectKey, Namespace | Unstructured] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    links: Links = field(default_factory=Links)
    announcers: Mapping[str, str] = field(default_factory=dict)
    unheard: frozenset[str] = frozenset()
    hidden: tuple[Pod, ...] = ()
    moves: Moves = field(default_factory=dict)

    def plan(self, plan: Plan) -> Plan:
        """The plan of a lab, as it began, as neighbours know it now: with nodes' addresses and announcers of now."""
        return renumbered(plan, self.moves).with_announcers(self.announcers)

    @property
    def objects(self) -> tuple[KubeObject, ...]:
        """All objects: namespaces, the ServiceCIDR, nodes, pods, Services, and the slices, derived anew."""
        nodes, pods = tuple(self.nodes.values()), (*self.pods.values(), *self.hidden)
        given = {(each.namespace, each.service) for each in self.slices.values()}
        own = [each for each in self.services if (each.namespace, each.name) not in given]
        derived = derive_slices(own, pods, nodes)
        things: tuple[KubeObject, ...] = (*nodes, *pods, *self.services, *derived, *self.slices.values())
        things = (*things, *self.further.values())
        network, cidrs = self.scenario.network, [ServiceCIDR(cidrs=self.scenario.network.service_cidrs)]
        if network.further_service_cidrs:
            cidrs.append(ServiceCIDR(name="further", cidrs=network.further_service_cidrs))
        return (*_namespaces(things), *cidrs, *things)

    def after(self, step: Step) -> "ClusterMoment":
        """The cluster after a step. Raises ``ScenarioError`` as ``through``."""
        return self.through(step)[-1]

    def through(self, step: Step) -> "tuple[ClusterMoment, ...]":
        """The cluster after a step's change, and after each stage of its rollouts. Raises ``ScenarioError``."""
        change = step.change
        of_nodes = [moves_of(self.machines[name].addresses, each.internal_ips) for name, each in change.nodes.items()]
        moving = {former: new for each in of_nodes for former, new in each.items()}
        declared, machines = _moved(self.declared, moving), _moved(self.machines, moving)
        there = _moved(self.pods, moving)
        pods = _following(
            there, {name: _pod(there.get(name), declared[name], each) for name, each in change.pods.items()}
        )
        known = _moved(self.nodes, moving)
        nodes = _following(
            known, {name: _node(known.get(name), machines[name], each) for name, each in change.nodes.items()}
        )
        further = dict(self.further)
        for each in change.workloads:
            if each.before is not None:
                further.pop(each.before.key)
            if each.after is not None:
                further[each.after.key] = each.after
        changed = replace(
            self,
            declared=declared,
            machines=machines,
            moves=_joined(self.moves, moving),
            nodes=nodes,
            pods=pods,
            further=further,
            services=_allocated(self.scenario, _written(self.services, change.services), lambda _: step.position),
            slices=_given(self.slices, change.slices),
            gone=frozenset(name for name in (*self.gone, *self.pods) if name not in pods),
            links=self.links.after(change.links),
            announcers={
                **self.announcers,
                **{name: each.announced_by for name, each in change.load_balancers.items() if each.is_heard},
            },
            unheard=frozenset(
                name
                for name in (*self.unheard, *change.load_balancers)
                if name not in change.load_balancers or not change.load_balancers[name].is_heard
            ),
        )
        stages = [stage for each in change.workloads for stage in each.stages]
        return tuple(accumulate(stages, lambda now, stage: _after_stage(now, stage, declared), initial=changed))

    def brought_to(self, scenario: Scenario) -> "ClusterMoment":
        """The cluster after applying the initial objects of another scenario with the same network.

        Services keep what the API server has allocated for them. Raises ``ScenarioError``.
        """
        there = {service.key: service for service in self.services}
        written = [keep_allocated(each, there[each.key]) if each.key in there else each for each in scenario.services]
        fresh = begin(scenario)
        return replace(fresh, services=_allocated(scenario, written, _positions(scenario)))


def _moved(things: Mapping[str, Named], moving: Moves) -> Mapping[str, Named]:
    """The nodes or pods with the addresses that they have after the moves."""
    if not moving:
        return things
    return {name: replace(each, addresses=moved(each.addresses, moving)) for name, each in things.items()}


def _joined(before: Moves, moving: Moves) -> Moves:
    """The moves of both, one after the other. An address that comes back has not moved."""
    last = {former: moving.get(new, new) for former, new in before.items()}
    both = {**{former: new for former, new in moving.items() if former not in before.values()}, **last}
    return {former: new for former, new in both.items() if former != new}


def _after_stage(now: ClusterMoment, stage: RolloutStage, declared: Mapping[str, Pod]) -> ClusterMoment:
    """The cluster after one stage of a rollout; ``declared`` are all pods as they first are."""
    pods = {name: pod for name, pod in now.pods.items() if name not in stage.deleted}
    for each in stage.created:
        is_ready = not each.template.ready_after
        pods[each.name] = replace(declared[each.name], labels=each.labels, ready=is_ready, serving=is_ready)
    for name in (name for name in stage.ready if name in pods):
        pods[name] = replace(pods[name], ready=True, serving=True)
    for name in (name for name in stage.terminating if name in pods):
        pods[name] = replace(pods[name], ready=False, terminating=True)
    gone = frozenset(name for name in (*now.gone, *now.pods) if name not in pods)
    return replace(now, pods=pods, gone=gone)


def begin(scenario: Scenario) -> ClusterMoment:
    """The cluster when the lab begins. Raises ``ScenarioError``."""
    addresses = allocate_addresses(scenario)
    absent = {name for group in scenario.pods if not group.present for name in group.pod_names}
    services: tuple[Service, ...] = scenario.services
    hidden: tuple[Pod, ...] = ()
    if has_own_server(scenario):
        services = (*services, kube_dns(addresses.service_networks))
        hidden = (coredns(scenario.nodes[0].name, addresses.name_server),)
    declared = {pod.name: pod for pod in _pods(scenario, addresses)}
    machines = {node.name: node for node in _nodes(scenario, addresses)}
    return ClusterMoment(
        scenario=scenario,
        declared=declared,
        machines=machines,
        nodes={node.name: machines[node.name] for node in scenario.nodes if node.present},
        pods={name: pod for name, pod in declared.items() if name not in absent},
        services=_allocated(scenario, services, _positions(scenario)),
        slices={each.key: each for each in scenario.slices},
        further={each.key: each for each in scenario.further},
        announcers={each.name: each.announced_by for each in scenario.load_balancers if each.announced_by},
        hidden=hidden,
    )


def _namespaces(things: Iterable[KubeObject]) -> tuple[Namespace, ...]:
    """The namespaces that every cluster has, and those of the objects."""
    things = tuple(things)
    used = dict.fromkeys(("default", "kube-system", *(thing.key.namespace for thing in things)))
    declared = {thing.name for thing in things if isinstance(thing, Namespace)}
    return tuple(Namespace(name=name) for name in used if name and name not in declared)


def _written(services: Iterable[Service], changes: Iterable[ServiceChange]) -> tuple[Service, ...]:
    """The Services after the changes, as their authors wrote them, with the allocated fields that they keep."""
    there = {service.key: service for service in services}
    for change in changes:
        key = ObjectKey("Service", change.namespace, change.name)
        before = there.get(key)
        if change.service is None:
            there.pop(key, None)
        else:
            there[key] = change.service if before is None else keep_allocated(change.service, before)
    return tuple(there.values())


def _given(slices: Mapping[ObjectKey, EndpointSlice], changes: Iterable[SliceChange]) -> dict[ObjectKey, EndpointSlice]:
    there = dict(slices)
    for change in changes:
        key = ObjectKey("EndpointSlice", change.namespace, change.name)
        if change.slice is None:
            there.pop(key, None)
        else:
            there[key] = change.slice
    return there


def _following(there: Mapping[str, Named], changed: Mapping[str, Named | None]) -> dict[str, Named]:
    """All objects of a kind after the changes; ``None`` deletes an object."""
    return {name: each for name, each in {**there, **changed}.items() if each is not None}


def _pod(pod: Pod | None, declared: Pod, change: PodChange) -> Pod | None:
    """The pod after the change. A pod that comes back is as the scenario declares it."""
    if change.present is False or (pod is None and not change.present):
        return None
    pod = pod or declared
    return replace(
        pod,
        ready=pod.ready if change.ready is None else change.ready,
        serving=pod.serving if change.serving is None else change.serving,
        terminating=pod.terminating if change.terminating is None else change.terminating,
        labels=_labelled(pod.labels, change.labels),
    )


def _node(node: Node | None, declared: Node, change: NodeChange) -> Node | None:
    """The Node object after the change."""
    if change.present is False or (node is None and not change.present):
        return None
    node = node or declared
    return replace(
        node,
        labels=_labelled(node.labels, change.labels),
        taints=node.taints if change.taints is None else change.taints,
        deleting=node.deleting if change.terminating is None else change.terminating,
    )


def _labelled(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**labels, **changes}.items() if value is not None}


def _allocated(
    scenario: Scenario, services: Iterable[Service], position: Callable[[str], Position | str]
) -> tuple[Service, ...]:
    pools = [Pool(balancer.name, balancer.pool) for balancer in scenario.load_balancers]
    try:
        network = scenario.network
        allocated = allocate_services(
            tuple(services), network.service_cidrs, network.node_ports, network.further_service_cidrs
        )
        return give_ingress(allocated, pools)
    except ScenarioError as error:
        raise ScenarioError([f"{position(problem)}: {problem}" for problem in error.problems]) from None


def _positions(scenario: Scenario) -> Callable[[str], Position | str]:
    """Finds the place of the Service that a problem of allocation names."""
    services = (f"Service {each.namespace}/{each.name}" for each in scenario.services)
    positions = dict(zip(services, scenario.service_positions, strict=False))
    return lambda problem: positions.get(problem.partition(": ")[0], scenario.file)


def _nodes(scenario: Scenario, addresses: AddressPlan) -> Iterator[Node]:
    """The Node objects."""
    for node in scenario.nodes:
        yield Node(
            name=node.name,
            labels=node.labels,
            addresses=addresses.node[node.name],
            pod_cidrs=addresses.pod_network[node.name],
            taints=node.taints,
            deleting=node.terminating,
        )


def _pods(scenario: Scenario, addresses: AddressPlan) -> Iterator[Pod]:
    """The Pod objects of all declared pods."""
    for group in scenario.pods:
        for ordinal, name in enumerate(group.pod_names):
            yield Pod(
                namespace=group.namespace,
                name=name,
                labels=group.labels,
                node_name=group.node_of(ordinal),
                addresses=addresses.pod[name],
                ports=tuple(each.in_api for each in group.ports),
                hostname=(group.hostname or name) if group.subdomain else "",
                subdomain=group.subdomain,
                host_network=group.host_network,
                ready=group.ready,
                serving=group.is_serving,
                terminating=group.terminating,
            )
