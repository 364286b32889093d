"""``draw``: the network of a scenario as a plan, with its namespaces, links and routes.

            fabric                                    router
    ┌──────────────────────┐     nodes    ┌────────────────────────────┐
    │ bridge nodes ────────┼──────────────┤ default gateway of nodes   │
    │ bridge outside ──────┼──────────────┤ and of outside hosts       │
    └──┬────────┬────────┬─┘    outside   └────────────────────────────┘
       │ eth0   │ eth0   │ eth0
    ┌──┴───┐ ┌──┴───┐ ┌──┴───┐
    │node-a│ │node-b│ │client│   hosts are on the bridge outside, or on another segment
    └──┬───┘ └──┬───┘ └──────┘
       │ echo-1 │ echo-2         one veth for each pod, named after it
    ┌──┴───┐ ┌──┴───┐
    │echo-1│ │echo-2│ eth0
    └──────┘ └──────┘

Nodes route each other's pod networks directly (``interNode: host-gw``), or through a VXLAN device (``vxlan``) as
flannel does: its address is the first of the node's pod network, routes have the other device's address as an on-link
next hop, and all neighbours and forwarding entries are static, so that nodes neither learn nor resolve them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Transport
from proxylab.cluster.objects import is_excluded
from proxylab.errors import ScenarioError
from proxylab.plan.addresses import AddressPlan, allocate_addresses
from proxylab.plan.balance import pool_routes, shared_route
from proxylab.plan.device_names import FABRIC, OVERLAY, ROUTER
from proxylab.plan.draft import Draft, NamespaceDraft
from proxylab.plan.impairments import impaired_links, with_neighbours
from proxylab.plan.model import (
    MAIN_TABLE,
    POLICY_TABLE,
    Address,
    Balancer,
    Device,
    ForwardingEntry,
    Leftover,
    LinkEnd,
    Listener,
    Masquerade,
    Neighbour,
    Plan,
    PolicyRule,
    Role,
    Route,
    Sysctl,
    ends_by_namespace,
)
from proxylab.plan.pods import add_pods, everywhere
from proxylab.plan.refusals import address_conflicts, placements, refusals
from proxylab.plan.sysctls import DEVICES_AT_HAND, device_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, OUTSIDE, UPLINK
from proxylab.scenario.nodes import LabNode, NodeRoute
from proxylab.scenario.pods import Host, LoadBalancer
from proxylab.scenario.probes import HostTarget, Probe, Stream
from proxylab.scenario.words import ClientAddress, Dials

_VNI: Final = 1
_VXLAN_PORT: Final = 8472  # flannel's and the kernel's own; IANA's 4789 came later
_FIRST_TABLE: Final = 100
_FIRST_PRIORITY: Final = 1000
_POLICY_PRIORITY: Final = 100
_FAMILY_OF_TOOL: Final = {"iptables": Family.IPV4, "ip6tables": Family.IPV6}


def draw(scenario: Scenario) -> Plan:
    """The plan of a scenario: the same scenario always gives the same plan.

    Raises:
        ScenarioError: addresses run out, a name is not available, or the network is impossible.
    """
    problems = refusals(scenario)
    if problems:
        raise ScenarioError(problems)
    addresses = allocate_addresses(scenario)
    problems = address_conflicts(scenario, addresses)
    if problems:
        raise ScenarioError(problems)
    draft = Draft(scenario.network.families)
    fabric = draft.namespace(FABRIC, Role.SEGMENT)
    bridges = {name: draft.bridge(fabric, name).device for name in _segments_in_use(scenario)}
    segments = _Segments(addresses, draft, fabric, bridges, scenario.network.mtu)
    _add_router(scenario, addresses, draft, segments)
    nodes = {node.name: draft.namespace(node.name, Role.NODE, node.sysctls) for node in scenario.nodes}
    for node in scenario.nodes:
        _link_node(node, nodes[node.name], addresses, segments)
    if scenario.network.inter_node == "vxlan":
        _overlay(nodes, addresses, draft)
    else:
        _route_directly(nodes, addresses)
    add_pods(scenario, addresses, draft, nodes)
    if scenario.network.outbound_masquerade:
        for name, namespace in nodes.items():
            namespace.masquerades += _masquerades(scenario, addresses.behind(name))
    for node in scenario.nodes:
        nodes[node.name].leftovers += _leftovers(scenario, node)
        nodes[node.name].conntrack = node.conntrack
        nodes[node.name].programs = node.programs.by_name
    for host in scenario.hosts:
        namespace = draft.namespace(host.name, Role.HOST, host.sysctls)
        namespace.listeners += dict.fromkeys(
            [*_dialled(scenario, host.name), *_serving(scenario, host.name, addresses)]
        )
        _link_host(host, namespace, addresses, segments)
    draft.impair(fabric, impaired_links(scenario))
    plan = with_neighbours(draft.finished())
    problems = _device_problems(scenario, plan)
    if problems:
        raise ScenarioError(problems)
    return plan


class _Segments:
    """The bridges of the fabric; ``join`` connects a namespace to one of them."""

    def __init__(
        self,
        addresses: AddressPlan,
        draft: Draft,
        fabric: NamespaceDraft,
        bridges: Mapping[str, str],
        mtus: Mapping[str, int],
    ) -> None:
        self.names = tuple(bridges)
        self._addresses = addresses
        self._draft = draft
        self._fabric = fabric
        self._bridges = bridges
        self._mtus = mtus
        self._joined: defaultdict[str, list[tuple[NamespaceDraft, str]]] = defaultdict(list)

    def join(
        self, namespace: NamespaceDraft, port: str, segment: str, wanted: str, own: Iterable[IPAddress]
    ) -> LinkEnd:
        """Link a namespace to a segment and give it its addresses there. Returns its end of the link."""
        master, mtu = self._bridges[segment], self._mtus.get(segment)
        link = self._draft.link(self._fabric, port, namespace, wanted, master, mtu)
        networks = self._addresses.segments[segment]
        for address in own:
            namespace.address(link.second.device, address, next(network for network in networks if address in network))
        if any(network.version == 6 for network in networks):
            namespace.link_local(link.second.device, link.second.mac)
        self._joined[segment].append((namespace, link.second.device))
        return link.second

    def joined(self, segment: str) -> tuple[tuple[NamespaceDraft, str], ...]:
        """The namespaces on a segment so far, each with its device there."""
        return tuple(self._joined[segment])


def _segments_in_use(scenario: Scenario) -> list[str]:
    outside = any(host.segment == OUTSIDE for host in scenario.hosts) or any(
        uplink.segment == OUTSIDE for node in scenario.nodes for uplink in node.uplinks
    )
    return [NODES, *([OUTSIDE] if outside else []), *(segment.name for segment in scenario.network.segments)]


def _add_router(scenario: Scenario, addresses: AddressPlan, draft: Draft, segments: _Segments) -> None:
    router = draft.namespace(ROUTER, Role.ROUTER, scenario.network.router_sysctls)
    legs = {
        name: segments.join(
            router, ROUTER if name == NODES else f"{ROUTER}-{name}", name, name, addresses.router[name]
        ).device
        for name in segments.names
    }
    inner = legs[NODES]
    for name, own in addresses.node.items():
        _route_behind(router, addresses.behind(name), inner, own)
    # No device has a cluster IP; hosts reach them by a static route to the first node. A resolved probe that needs
    # another node has a policy route.
    shared = [(each.network, each.nodes) for each in scenario.network.routed]
    first = {Family.of(each): each for each in next(iter(addresses.node.values()))}
    for network in (*addresses.service_networks, *scenario.network.further_service_cidrs):
        if all(network != own for own, _nodes in shared):
            router.route(network, inner, via=first[Family.of(network)])
    for network, names in shared:
        family = scenario.network.families.index(Family.of(network))
        router.routes.append(shared_route(network, inner, [addresses.node[name][family] for name in names]))
    draft.balancers = tuple(_balancer(each, addresses, inner) for each in scenario.load_balancers)
    excluded = [each.name for each in scenario.nodes if is_excluded(each.labels) or not each.present]
    router.routes += pool_routes(draft.balancers, excluded)
    router.rules += [PolicyRule(family, _POLICY_PRIORITY, POLICY_TABLE) for family in scenario.network.families]


def _balancer(balancer: LoadBalancer, addresses: AddressPlan, device: str) -> Balancer:
    return Balancer(
        name=balancer.name,
        pool=balancer.pool,
        nodes={name: addresses.node[name] for name in balancer.nodes},
        device=device,
        health_checked=balancer.health_checked,
        announced_by=balancer.announced_by,
        dials_node_ports=balancer.dials is Dials.NODE_PORTS,
        replaces_client=balancer.client_ip is ClientAddress.REPLACED,
    )


def _link_node(node: LabNode, namespace: NamespaceDraft, addresses: AddressPlan, segments: _Segments) -> None:
    uplink = segments.join(namespace, node.name, NODES, UPLINK, addresses.node[node.name]).device
    by_author = {Family.of(each.destination) for each in node.routes if _is_default(each)}
    for gateway in addresses.router[NODES]:
        if Family.of(gateway) not in by_author:
            namespace.route(everywhere(gateway), uplink, via=gateway)
    for further in node.uplinks:
        own = addresses.uplink[node.name, further.device]
        segments.join(namespace, f"{node.name}-{further.device}", further.segment, further.device, own)
    namespace.addresses += [Address(each.device, each.interface, each.deprecated) for each in node.addresses]
    namespace.listeners += [
        Listener(each.name, each.protocol, each.port, each.address, position=str(node.position))
        for each in node.daemons
    ]
    tables: dict[IPNetwork, int] = {}
    for route in node.routes:
        table = MAIN_TABLE
        if route.source is not None:
            if route.source not in tables:
                tables[route.source] = _FIRST_TABLE + len(tables)
                priority = _FIRST_PRIORITY + len(tables)
                family = Family.of(route.source)
                namespace.rules.append(PolicyRule(family, priority, tables[route.source], route.source))
            table = tables[route.source]
        namespace.routes.append(Route(route.destination, route.device, route.via, table=table, mtu=route.mtu))


def _is_default(route: NodeRoute) -> bool:
    """Whether it is a default route for all packets, in place of that to the router through the first uplink."""
    return route.destination.prefixlen == 0 and route.source is None


def _route_directly(nodes: Mapping[str, NamespaceDraft], addresses: AddressPlan) -> None:
    for node in nodes.values():
        for name, own in addresses.node.items():
            if name != node.name:
                _route_behind(node, addresses.behind(name), UPLINK, own)


def _route_behind(
    namespace: NamespaceDraft,
    networks: Iterable[IPNetwork],
    device: str,
    ways: Sequence[IPAddress],
    *,
    onlink: bool = False,
) -> None:
    """Route networks of pods to their node, each via its address of the same family."""
    by_family = {Family.of(way): way for way in ways}
    for network in networks:
        namespace.route(network, device, via=by_family[Family.of(network)], onlink=onlink)


def _overlay(nodes: Mapping[str, NamespaceDraft], addresses: AddressPlan, draft: Draft) -> None:
    """Draw a VXLAN device in every node. The tunnel's outer family is the lab's first; it carries both."""
    devices = {
        name: draft.vxlan(node, OVERLAY, UPLINK, addresses.node[name][0], _VNI, _VXLAN_PORT)
        for name, node in nodes.items()
    }
    for name, node in nodes.items():
        device = devices[name].device
        for address in addresses.overlay(name):
            node.address(device, address)
        for other, there in devices.items():
            if other == name:
                continue
            _route_behind(node, addresses.behind(other), device, addresses.overlay(other), onlink=True)
            node.neighbours += [Neighbour(device, via, there.mac) for via in addresses.overlay(other)]
            node.forwarding.append(ForwardingEntry(device, there.mac, there.local))


def _masquerades(scenario: Scenario, pods: Sequence[IPNetwork]) -> Iterator[Masquerade]:
    """A node masquerades its pods' traffic except to other pods, as kind's and flannel's masquerading agents do."""
    for family in scenario.network.families:
        sources = tuple(network for network in pods if Family.of(network) is family)
        spared = tuple(network for network in scenario.network.pod_cidrs if Family.of(network) is family)
        yield Masquerade(family, sources, spared)


def _leftovers(scenario: Scenario, node: LabNode) -> Iterator[Leftover]:
    """The leftover rules of the lab's families: an engine does not touch tables of another family."""
    for tool, text in node.leftovers.by_tool.items():
        if _FAMILY_OF_TOOL.get(tool) in (None, *scenario.network.families):
            yield Leftover(tool, text)


def _link_host(host: Host, namespace: NamespaceDraft, addresses: AddressPlan, segments: _Segments) -> None:
    own = addresses.host[host.name]
    others = segments.joined(host.segment)
    end = segments.join(namespace, host.name, host.segment, UPLINK, own)
    if len(own) > len(addresses.segments[host.segment]):
        _introduce(own, end.mac, others)
    for gateway in addresses.router[host.segment]:
        namespace.route(everywhere(gateway), end.device, via=gateway)


def _introduce(crowd: Sequence[IPAddress], mac: str, others: Iterable[tuple[NamespaceDraft, str]]) -> None:
    """Give all others on a segment permanent neighbour entries for a host with many addresses.

    The kernel has one neighbour table for all namespaces, with room for 1,024 learnt entries of each family
    (``gc_thresh3``); a few such hosts fill it, and then the kernel drops packets. Permanent entries do not count.
    """
    for namespace, device in others:
        namespace.neighbours += [Neighbour(device, address, mac) for address in crowd]


def _dialled(scenario: Scenario, host: str) -> Iterator[Listener]:
    """The ports of a host that the scenario's probes and streams dial; the host listens on them."""
    dialling: tuple[Probe | Stream, ...] = (*scenario.all_probes, *scenario.streams)
    for probe in dialling:
        target, protocol = probe.target, (probe.send.protocol or Transport.TCP).served
        if isinstance(target, HostTarget) and target.host == host and protocol and target.port:
            yield Listener(host, protocol, target.port)


def _serving(scenario: Scenario, host: str, addresses: AddressPlan) -> Iterator[Listener]:
    """The ports of the author's slices in which a host is an endpoint; the host listens on them."""
    own = frozenset(addresses.host[host])
    changed = (change.slice for step in scenario.steps for change in step.change.slices)
    for each in (*scenario.slices, *filter(None, changed)):
        if any(endpoint.addresses[0] in own for endpoint in each.endpoints):
            yield from (Listener(host, port.protocol, port.port) for port in each.ports)


def _device_problems(scenario: Scenario, plan: Plan) -> list[str]:
    """The author's sysctls of devices that the finished plan does not have."""
    ends = ends_by_namespace(plan)
    authors = {ROUTER: scenario.file, **dict(placements(scenario))}
    authors |= {pod.namespace: authors[pod.name] for pod in plan.pods if pod.namespace not in authors}
    problems: list[str] = []
    for namespace in plan.namespaces:
        made: list[Device] = [*ends[namespace.name], *namespace.bridges, *namespace.vxlans]
        devices = [*DEVICES_AT_HAND, *(device.device for device in made)]
        problems += [
            f"{authors[namespace.name]}: {namespace.name}: sysctl {sysctl.name}: there is no such device; "
            f"use {', '.join(devices)}"
            for sysctl in namespace.device_sysctls
            if not _names_one_of(sysctl, devices)
        ]
    return problems


def _names_one_of(sysctl: Sysctl, devices: list[str]) -> bool:
    device = device_of(sysctl.name)
    return device is not None and device.replace("/", ".") in devices
