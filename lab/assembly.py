"""Everything that follows from a scenario before anything is made: plan, cluster objects, errands.

Owns: ``assemble`` and ``lay_out``, the way through the pure rooms in their order.
Must not: touch the kernel, or judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.cluster.allocate import allocate_services
from lab.cluster.ingress import Pool, give_ingress
from lab.cluster.objects import EndpointSlice, KubeObject, Namespace, Node, Pod, Service, ServiceCIDR
from lab.cluster.slices import derive_slices
from lab.errors import ScenarioError
from lab.ip import Family, IPAddress
from lab.plan.addresses import AddressPlan, allocate_addresses
from lab.plan.dialogue import MOST_TURNS, Dialogue, Turn
from lab.plan.errand import Errand, Fence
from lab.plan.errands import resolve
from lab.plan.model import Plan
from lab.plan.sharing import refuse_neighbours
from lab.plan.sources import snat_source
from lab.plan.topology import draw
from lab.scenario.model import AddressTarget, NodeDevice, Position, Preserved, Probe, Scenario, Source

__all__ = ["Assembly", "Layout", "assemble", "lay_out", "lead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A scenario with all that follows from it.

    ``objects`` are what the engines see: nodes, pods, Services with everything allocated, and their slices. ``errands``
    and ``expected_sources`` stand in the order of the scenario's probes.
    """

    scenario: Scenario
    plan: Plan
    objects: tuple[KubeObject, ...]
    errands: tuple[Errand, ...]
    expected_sources: tuple[IPAddress | None, ...]

    def errand(self, probe: Probe) -> Errand:
        """The errand of one of the scenario's probes."""
        return self.errands[self.scenario.probes.index(probe)]

    def expected_source(self, probe: Probe) -> IPAddress | None:
        """The source address that the probe's backends must see; ``None`` for the sender's own, or if none is said."""
        return self.expected_sources[self.scenario.probes.index(probe)]

    def with_probe(self, probe: Probe) -> "Assembly":
        """The same with one more probe, unless it is one of them already.

        Raises:
            ScenarioError: the probe names what is not there.
        """
        if probe in self.scenario.probes:
            return self
        return assemble(replace(self.scenario, probes=(*self.scenario.probes, probe)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What of a scenario needs no probe: the wire, and what the engines see (see ``Assembly``)."""

    scenario: Scenario
    plan: Plan
    services: tuple[Service, ...]
    objects: tuple[KubeObject, ...]


def lay_out(scenario: Scenario) -> Layout:
    """Lay a scenario's cluster out, whatever is sent through it. The same scenario always gives the same layout.

    Raises:
        ScenarioError: with a line for each thing that cannot be had.
    """
    plan = draw(scenario)
    services = _allocated(scenario)
    nodes, pods = _cluster(scenario, allocate_addresses(scenario))
    given = {(each.namespace, each.service) for each in scenario.slices}
    derived = derive_slices([each for each in services if (each.namespace, each.name) not in given], pods, nodes)
    things: tuple[KubeObject, ...] = (*nodes, *pods, *services, *derived, *scenario.slices)
    objects = (*_namespaces(things), ServiceCIDR(cidrs=scenario.network.service_cidrs), *things)
    return Layout(scenario=scenario, plan=plan, services=services, objects=objects)


def assemble(scenario: Scenario) -> Assembly:
    """Lay a scenario out, with its probes. The same scenario always gives the same assembly.

    Raises:
        ScenarioError: with a line for each thing that cannot be had, or that is named and not there.
    """
    layout = lay_out(scenario)
    refuse_neighbours(scenario, layout.plan, [each for each in layout.objects if isinstance(each, EndpointSlice)])
    errands = resolve(scenario, layout.plan, layout.services)
    return Assembly(
        scenario=scenario,
        plan=layout.plan,
        objects=layout.objects,
        errands=errands,
        expected_sources=_expected_sources(scenario, layout.plan, errands),
    )


def lead(assembly: Assembly, there: Probe, server: str, turns: Sequence[Turn]) -> Dialogue:
    """A dialogue between two places of a lab, of which each has a kernel of its own that can be kept out of it.

    Args:
        assembly: of the lab.
        there: whom the client dials; its expectations are nobody's.
        server: the pod or outside host that answers.
        turns: what both say.

    Raises:
        ScenarioError: it cannot be held, at the place of the probe.
    """
    client, scenario = there.source.name, assembly.scenario
    pods = {pod.name: pod for pod in assembly.plan.pods}
    hosts = {host.name for host in scenario.hosts}
    problems = [
        f"{there.position}: dialogue: {name!r} is no pod with a network of its own and no outside host"
        for name in (client, server)
        if name not in hosts and (name not in pods or pods[name].namespace in {each.name for each in scenario.nodes})
    ]
    if not problems and client == server:
        problems.append(f"{there.position}: dialogue: {client!r} cannot talk to itself; name two places")
    if not 0 < len(turns) <= MOST_TURNS:
        problems.append(f"{there.position}: dialogue: {len(turns)} turns; allowed: 1 to {MOST_TURNS}")
    if problems:
        raise ScenarioError(problems)
    (forth,) = assemble(replace(scenario, probes=(there,))).errands
    straight = AddressTarget(address=forth.sender.address, port=1)
    back = replace(there, name=f"{there.name}, and back", source=Source(name=server), target=straight)
    (home,) = assemble(replace(scenario, probes=(back,))).errands
    fence = Fence(name=client, address=home.destination)
    if fence not in home.fences:
        home = replace(home, fences=(*home.fences, fence))
    return Dialogue(forth, home, tuple(turns))


def _namespaces(things: Sequence[KubeObject]) -> tuple[Namespace, ...]:
    """Those that every cluster has, and those that something is in."""
    used = dict.fromkeys(("default", "kube-system", *(thing.key.namespace for thing in things)))
    return tuple(Namespace(name=name) for name in used if name)


def _allocated(scenario: Scenario) -> tuple[Service, ...]:
    pools = [Pool(balancer.name, balancer.pool) for balancer in scenario.load_balancers]
    try:
        return give_ingress(allocate_services(scenario.services, scenario.network.service_cidrs), pools)
    except ScenarioError as error:
        raise ScenarioError([f"{_position(scenario, problem)}: {problem}" for problem in error.problems]) from None


def _position(scenario: Scenario, problem: str) -> Position | str:
    """Where the Service stands that a problem of allocation is about."""
    for service, position in zip(scenario.services, scenario.service_positions, strict=False):
        if problem.startswith(f"Service {service.namespace}/{service.name}: "):
            return position
    return scenario.file


def _cluster(scenario: Scenario, addresses: AddressPlan) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    """Nodes and pods as the API server would show them."""
    nodes = tuple(
        Node(
            name=node.name,
            labels=node.labels,
            addresses=addresses.node[node.name],
            pod_cidrs=addresses.pod_network[node.name],
            taints=node.taints,
            deleting=node.terminating,
        )
        for node in scenario.nodes
    )
    pods = tuple(
        Pod(
            namespace=group.namespace,
            name=name,
            labels=group.labels,
            node_name=group.node_of(ordinal),
            addresses=addresses.pod[name],
            ports=group.ports,
            hostname=(group.hostname or name) if group.subdomain else "",
            subdomain=group.subdomain,
            ready=group.ready,
            serving=group.serving,
            terminating=group.terminating,
        )
        for group in scenario.pods
        if group.present
        for ordinal, name in enumerate(group.pod_names)
    )
    return nodes, pods


def _expected_sources(scenario: Scenario, plan: Plan, errands: Sequence[Errand]) -> tuple[IPAddress | None, ...]:
    problems: list[str] = []
    sources = tuple(
        _expected_source(probe, plan, Family.of(errand.destination), problems)
        for probe, errand in zip(scenario.probes, errands, strict=True)
    )
    if problems:
        raise ScenarioError(problems)
    return sources


def _expected_source(probe: Probe, plan: Plan, family: Family, problems: list[str]) -> IPAddress | None:
    source = probe.expect.source
    if source is None or isinstance(source, Preserved):
        return None
    if not isinstance(source, NodeDevice):
        return source
    try:
        return snat_source(plan, source.node, source.device, family)
    except LookupError as error:
        place = probe.expect.positions.get("source", probe.expect.position)
        problems.append(f"{place}: probe {probe.name!r}: expect.source: {error}")
        return None
