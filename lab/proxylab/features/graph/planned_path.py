"""The path of a probe before a run, from the plan and the author's expectations.

The module knows no rules. The address of a Service leads to the node that translates it; the probe's expectations name
the endpoints and the source; the plan gives the source address that masquerading would set.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import Service, ServicePort
from proxylab.cluster.slices import slices_of
from proxylab.evidence.words import endpoint, listed
from proxylab.features.graph.paths import Branch, Path, PathHop
from proxylab.plan.assembly import Assembly
from proxylab.plan.forwarding import Hop, UnreachableError, next_hop, path
from proxylab.plan.model import Plan, Role, Route
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.plan.sources import masquerade_source
from proxylab.scenario.expect import Masqueraded, Preserved, SourceAddress, SourceByBackend
from proxylab.scenario.probes import Probe
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.words import Outcome

_MOST_BRANCHES: Final = 8
_MOST_HOPS: Final = 16


class _Frontend(Struct, frozen=True):
    """The Service port that a resolved probe dials; ``of_node`` if it dials the node port, not a Service address."""

    service: Service
    port: ServicePort
    of_node: bool


class _Backend(Struct, frozen=True):
    name: str
    address: IPAddress
    port: int


def planned_path(assembly: Assembly, probe: Probe) -> Path:
    """The path of a probe, from its sender to every endpoint that may receive it."""
    resolved = assembly.resolved(probe)
    plan = _with_policy_route(assembly.plan_after(assembly.scenario.steps_before(probe)), resolved)
    title = f"{probe.name}, as planned"
    frontend = _frontend(assembly, plan, probe, resolved)
    try:
        hops = _dialled(plan, resolved, frontend)
    except UnreachableError as error:
        return Path(title, (), ends=(str(error),))
    dialled = endpoint(resolved.destination, resolved.port)
    legs = _legs(hops, f"{resolved.sender.address} > {dialled}", resolved)
    last = hops[-1].into.namespace if hops else resolved.sender.namespace
    delivers = frontend is not None and probe.expect.outcome in (Outcome.DELIVERED, Outcome.REFUSED)
    backends = list(_backends(assembly, probe, frontend, resolved)) if frontend is not None and delivers else []
    if not backends:
        return Path(title, legs, ends=tuple(_expected(assembly, probe)))
    branches = tuple(_branch(assembly, plan, probe, last, each) for each in backends[:_MOST_BRANCHES])
    several = f"one of {len(backends):,} endpoints" if len(backends) > 1 else listed([each.name for each in backends])
    ends = [f"{last} translates {dialled} to {several}"]
    if len(backends) > _MOST_BRANCHES:
        ends.append(f"of which {_MOST_BRANCHES} are shown")
    return Path(title, legs, branches, tuple(ends))


def _expected(assembly: Assembly, probe: Probe) -> Iterator[str]:
    """The author's expectations at the end of a path on which no Service translates."""
    expect, source = probe.expect, assembly.expected_source(probe)
    if expect.http is None:
        yield f"expected: {expect.outcome}{(expect.at and f' at {expect.at}') or ''}"
    if source is not None:
        yield f"expected to come from {source}"


def _with_policy_route(plan: Plan, resolved: ResolvedProbe) -> Plan:
    """The plan with the policy route that the router gets for the probe."""
    if resolved.policy_route is None:
        return plan
    policy_route = resolved.policy_route
    return plan.with_routes(
        policy_route.namespace, (Route(policy_route.destination, policy_route.device, policy_route.via),)
    )


def _frontend(assembly: Assembly, plan: Plan, probe: Probe, resolved: ResolvedProbe) -> _Frontend | None:
    """The Service port that the probe dials, or ``None`` if no proxy translates the destination."""
    nodes = [each for each in plan.namespaces if each.role is Role.NODE]
    of_nodes = {address.interface.ip for node in nodes for address in node.addresses}
    for service in assembly.timeline[assembly.scenario.steps_before(probe)].services:
        own = set(chain.from_iterable(addresses_by_frontend(service, claimed=True).values()))
        for port in service.ports:
            if str(port.protocol) != str(resolved.protocol):
                continue
            if resolved.port == port.port and resolved.destination in own:
                return _Frontend(service, port, of_node=False)
            on_a_node = resolved.destination.is_loopback or resolved.destination in of_nodes
            if resolved.port == port.node_port and on_a_node:
                return _Frontend(service, port, of_node=True)
    return None


def _dialled(plan: Plan, resolved: ResolvedProbe, frontend: _Frontend | None) -> tuple[Hop, ...]:
    """The hops to the owner of the dialled address, or to the first node on the path, which translates it.

    Raises:
        UnreachableError: the path ends before.
    """
    netns_name = resolved.sender.namespace
    if resolved.destination.is_loopback:
        return ()
    if frontend is None or frontend.of_node:
        return path(plan, netns_name, resolved.destination)
    nodes = {each.name for each in plan.namespaces if each.role is Role.NODE}
    hops: list[Hop] = []
    while netns_name not in nodes:
        if len(hops) == _MOST_HOPS:
            raise UnreachableError(f"the path to {resolved.destination} reaches no node")
        hops.append(next_hop(plan, netns_name, resolved.destination))
        netns_name = hops[-1].into.namespace
    return tuple(hops)


def _backends(assembly: Assembly, probe: Probe, frontend: _Frontend, resolved: ResolvedProbe) -> Iterator[_Backend]:
    """The endpoints that may receive the probe: the expected backends, or all ready ones."""
    names = {each.address: each.name for each in reversed(resolved.receivers)}
    wanted = probe.expect.backend_names
    objects = assembly.timeline[assembly.scenario.steps_before(probe)].objects
    for slice_ in slices_of(frontend.service, objects):
        ports = [each.port for each in slice_.ports if each.name == frontend.port.name]
        for each in slice_.endpoints:
            address = each.addresses[0]
            name = each.target or names.get(address, str(address))
            if address.version == resolved.destination.version and (name in wanted if wanted else each.ready):
                yield from (_Backend(name, address, number) for number in ports)


def _branch(assembly: Assembly, plan: Plan, probe: Probe, node: str, backend: _Backend) -> Branch:
    """The path from the translating node to one endpoint, with the source that the probe expects."""
    resolved = assembly.resolved(probe)
    there = endpoint(backend.address, backend.port)
    changes = [f"destination {endpoint(resolved.destination, resolved.port)} becomes {there}"]
    try:
        hops = path(plan, node, backend.address)
        masquerade_address = masquerade_source(plan, node, hops[0].out.device, backend.address) if hops else None
    except LookupError as error:
        return Branch(backend.name, (), (str(error),))
    source = _source(assembly, probe, (node, backend), masquerade_address)
    changes += source.changes
    legs = _legs(hops, f"{source.address} > {there}", resolved)
    if not legs:
        return Branch(backend.name, (), (*changes, "it stays on the node", *source.remarks))
    return Branch(backend.name, (replace(legs[0], changes=tuple(changes)), *legs[1:]), source.remarks)


class _SourceThere(Struct, frozen=True):
    """The source that a packet has at an endpoint, what changes it on the way, and remarks."""

    address: IPAddress
    changes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def _source(
    assembly: Assembly, probe: Probe, way: tuple[str, _Backend], masquerade_address: IPAddress | None
) -> _SourceThere:
    """The source that the probe expects at one endpoint.

    ``masquerade_address`` is what masquerading would set on this way.
    """
    resolved, (node, backend) = assembly.resolved(probe), way
    expectation, expected, own = probe.expect.source, assembly.expected_source(probe), resolved.sender.address
    if isinstance(expectation, SourceByBackend):
        expectation = expectation.of.get(backend.name)
        expected = expectation.address if isinstance(expectation, SourceAddress) else None
    if isinstance(expectation, Preserved):
        remark = f"it keeps its source, as expected; if masqueraded, it would be {masquerade_address}"
        return _SourceThere(own, remarks=(remark,) if masquerade_address else ())
    if isinstance(expectation, Masqueraded):
        ways = (each for each in resolved.masquerades if (each.node, each.backend) == (node, backend.address))
        expected = next((each.source for each in ways), None)
        if expected == own:
            return _SourceThere(own, (f"masquerading leaves its source at {own}",))
    if expected is not None:
        changes = (f"source {own} becomes {expected}",) if own != expected else ()
        remark = f"expected; by its output device masquerading would set {masquerade_address}"
        return _SourceThere(expected, changes, (remark,) if masquerade_address not in (None, expected) else ())
    remark = f"if masqueraded, its source would be {masquerade_address}"
    return _SourceThere(own, remarks=(remark,) if masquerade_address is not None else ())


def _legs(hops: tuple[Hop, ...], packet: str, resolved: ResolvedProbe) -> tuple[PathHop, ...]:
    """Hops as legs. A sending pod that shares a namespace keeps its own name."""
    sender = resolved.sender
    names = {sender.namespace: sender.name} if sender.device != STACK else {}
    return tuple(
        PathHop(
            names.get(hop.out.namespace, hop.out.namespace),
            hop.out.device,
            names.get(hop.into.namespace, hop.into.namespace),
            hop.into.device,
            packet,
        )
        for hop in hops
    )
