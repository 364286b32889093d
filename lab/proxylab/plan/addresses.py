"""The address plan: the IP addresses of every node, pod and host of a scenario.

On every segment the first address is the router's, unless the author fixes others. Nodes start at the second, as in
kind. Each node has a part of the pod network, a /24 or a /64, as with kube-controller-manager's
``--node-cidr-mask-size`` flags; its gateway has the first address there that the author gives to no pod. Pods, outside
hosts, and hosts and further uplinks of nodes on other segments start at the tenth, which leaves room for addresses that
the author fixes. The plan assigns a fixed address to nothing else.

A pod with a fixed address outside its node's part is a stray: it has routes of its own (``AddressPlan.behind``), as
with CNIs that assign addresses in no order. ``refusals`` refuses an address that has two owners.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import combinations, count, islice
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork, may_overlap
from proxylab.errors import ScenarioError
from proxylab.plan.name_servers import has_own_server
from proxylab.scenario.change import NodeChange
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, OUTSIDE
from proxylab.scenario.words import Position

_FIRST_ADDRESS: Final = 1
_FIRST_NODE: Final = 2
_FIRST: Final = 10
_NODE_MASK: Final = {Family.IPV4: 24, Family.IPV6: 64}

Addresses = tuple[IPAddress, ...]
"""Addresses of one node, pod or host: by default one for each family of the lab, in the order of the families."""


class AddressPlan(Struct, frozen=True, kw_only=True):
    """All addresses of a lab, by the names of the scenario, and by family within each.

    ``router`` is by segment. ``host`` holds all addresses of each host: those of the first family, then those of the
    next. ``pod_network`` is by node, and so is ``gateway``: the addresses of every pod device there, or of its bridge.
    ``strays``, by node too, are the fixed addresses of pods outside of it. ``uplink`` is by node and device, for the
    further uplinks of a node. ``name_server`` are the addresses of the lab's own, which runs on the first node.
    """

    segments: Mapping[str, tuple[IPNetwork, ...]]
    router: Mapping[str, Addresses]
    service_networks: tuple[IPNetwork, ...]
    node: Mapping[str, Addresses]
    pod: Mapping[str, Addresses]
    host: Mapping[str, Addresses]
    pod_network: Mapping[str, tuple[IPNetwork, ...]]
    gateway: Mapping[str, Addresses]
    strays: Mapping[str, Addresses]
    uplink: Mapping[tuple[str, str], Addresses]
    name_server: Addresses = ()

    def behind(self, node: str) -> tuple[IPNetwork, ...]:
        """The networks of the pods of ``node``: its parts of the pod networks, and each stray."""
        return (*self.pod_network[node], *map(ip_network, self.strays[node]))

    def overlay(self, node: str) -> Addresses:
        """The addresses of the node's VXLAN device: the first of its pod networks, as in flannel."""
        return tuple(network.network_address for network in self.pod_network[node])


class _Wish(Struct, frozen=True):
    """A request for addresses: how many in each family, except families with an address in ``fixed``."""

    name: str
    position: Position
    number: int = 1
    fixed: Addresses = ()


def allocate_addresses(scenario: Scenario) -> AddressPlan:
    """Assign addresses to every node, pod and host of the scenario. Raises ``ScenarioError``."""
    networks = _networks(scenario)
    segments = networks.segments
    problems: list[str] = []
    router = {name: _router(scenario, name, there) for name, there in segments.items()}
    by_hand = {each.interface.ip for node in scenario.nodes for each in node.addresses}
    fixed = {each for owner in scenario.machines for each in owner.fixed_addresses}
    fixed.update(*router.values(), *(each.internal_ips for each in _renumbered(scenario)))
    node_wishes = [_Wish(node.name, node.position, fixed=node.fixed_addresses) for node in scenario.nodes]
    node = _hand_out(segments[NODES], _FIRST_NODE, node_wishes, "spec.network.nodeCIDR", problems, fixed)
    host: dict[str, Addresses] = {}
    uplink: dict[tuple[str, str], Addresses] = {}
    for name, there in segments.items():
        of_hosts, of_uplinks = _on_segment(scenario, name, there, by_hand | fixed, problems)
        host |= of_hosts
        uplink |= of_uplinks
    pod_network = _pod_networks(networks.pods, node_wishes, problems)
    of_pods = {address for group in scenario.pods for address in group.addresses}
    gateway = {name: tuple(_gateway(part, of_pods) for part in parts) for name, parts in pod_network.items()}
    taken = of_pods.union(*gateway.values())
    pod = _pods(scenario, node, pod_network, taken, problems)
    name_server = _name_server(scenario, pod_network, taken, problems) if has_own_server(scenario) else ()
    if problems:
        raise ScenarioError(problems)
    return AddressPlan(
        segments=segments,
        router=router,
        service_networks=networks.services,
        node=node,
        pod=pod,
        host=host,
        pod_network=pod_network,
        gateway=gateway,
        strays=_strays(scenario, pod, pod_network),
        uplink=uplink,
        name_server=name_server,
    )


def _renumbered(scenario: Scenario) -> Iterator[NodeChange]:
    """The changes of nodes in steps."""
    for step in scenario.steps:
        yield from step.change.nodes.values()


def _on_segment(
    scenario: Scenario, name: str, networks: Iterable[IPNetwork], taken: Collection[IPAddress], problems: list[str]
) -> tuple[dict[str, Addresses], dict[tuple[str, str], Addresses]]:
    """The addresses of the hosts on a segment, and those of nodes' further uplinks there."""
    hosts = [
        _Wish(each.name, each.position, each.chosen_addresses, each.fixed_addresses)
        for each in scenario.hosts
        if each.segment == name
    ]
    uplinks = {
        (owner.name, each.device): _Wish(f"{owner.name}/{each.device}", owner.position)
        for owner in scenario.nodes
        for each in owner.uplinks
        if each.segment == name
    }
    where = {NODES: "spec.network.nodeCIDR", OUTSIDE: "spec.network.outsideCIDR"}.get(name, f"segment {name}")
    first = max(_FIRST, _FIRST_NODE + len(scenario.nodes)) if name == NODES else _FIRST
    given = _hand_out(networks, first, [*hosts, *uplinks.values()], where, problems, taken)
    return {each.name: given[each.name] for each in hosts}, {key: given[wish.name] for key, wish in uplinks.items()}


def _router(scenario: Scenario, segment: str, networks: Iterable[IPNetwork]) -> Addresses:
    given = scenario.network.routers.get(segment, ())
    return tuple(next((each for each in given if each in network), network[_FIRST_ADDRESS]) for network in networks)


def _gateway(network: IPNetwork, taken: Collection[IPAddress]) -> IPAddress:
    return next(each for each in (network[number] for number in count(_FIRST_ADDRESS)) if each not in taken)


def _name_server(
    scenario: Scenario,
    pod_network: Mapping[str, tuple[IPNetwork, ...]],
    taken: Collection[IPAddress],
    problems: list[str],
) -> Addresses:
    """Assigned below the pods' addresses, so that the name server changes no pod's address."""
    node = scenario.nodes[0]
    where = f"the pod network of {node.name}"
    wish = _Wish("the name server", node.position)
    return _hand_out(pod_network.get(node.name, ()), _FIRST_NODE, [wish], where, problems, taken)[wish.name]


def _pods(
    scenario: Scenario,
    node: Mapping[str, Addresses],
    pod_network: Mapping[str, tuple[IPNetwork, ...]],
    taken: Collection[IPAddress],
    problems: list[str],
) -> dict[str, Addresses]:
    """Pods' addresses: on the host network the node's, else the fixed ones, or the next of their node's part."""
    given: dict[str, Addresses] = {}
    on_node: dict[str, list[_Wish]] = {name: [] for name in pod_network}
    for group in scenario.pods:
        for ordinal, name in enumerate(group.pod_names):
            placement = group.node_of(ordinal)
            if group.host_network and placement in node:
                given[name] = node[placement]
            elif placement in on_node:
                on_node[placement].append(_Wish(name, group.position, fixed=group.addresses))
    for name, networks in pod_network.items():
        masks = " or ".join(f"/{network.prefixlen}" for network in networks)
        where = f"the pod network of {name}, a {masks} of spec.network.podCIDR"
        given |= _hand_out(networks, _FIRST, on_node[name], where, problems, taken)
    return given


def _strays(
    scenario: Scenario, pod: Mapping[str, Addresses], pod_network: Mapping[str, tuple[IPNetwork, ...]]
) -> dict[str, Addresses]:
    strays: dict[str, Addresses] = dict.fromkeys(pod_network, ())
    for group in scenario.pods:
        placement = group.node_of(0)
        if group.addresses and placement in strays and not group.host_network:
            own = pod.get(group.name, ())
            strays[placement] += tuple(each for each in own if not any(each in part for part in pod_network[placement]))
    return strays


class _Networks(Struct, frozen=True):
    """The networks of each segment, of pods and of Services: one for each family of the lab, in the same order."""

    segments: Mapping[str, tuple[IPNetwork, ...]]
    pods: tuple[IPNetwork, ...]
    services: tuple[IPNetwork, ...]


def _networks(scenario: Scenario) -> _Networks:
    """The networks of the lab. Raises ``ScenarioError``."""
    network = scenario.network
    cidrs: dict[str, Sequence[IPNetwork]] = {
        "spec.network.podCIDR": network.pod_cidrs,
        "spec.network.nodeCIDR": network.node_cidrs,
        "spec.network.serviceCIDR": network.service_cidrs,
        "spec.network.outsideCIDR": network.outside_cidrs,
        **{f"spec.network.segments.{segment.name}": segment.cidrs for segment in network.segments},
    }
    by_family = {
        key: [[cidr for cidr in given if Family.of(cidr) is family] for family in network.families]
        for key, given in cidrs.items()
    }
    problems = [
        f"{scenario.file}: {key}: expected one {family} network, found {len(found)}"
        for key, given in by_family.items()
        for family, found in zip(network.families, given, strict=True)
        if len(found) != 1
    ]
    problems += [
        f"{scenario.file}: {one}: {first} and {other} {second} overlap; keep them apart"
        for (one, firsts), (other, seconds) in combinations(cidrs.items(), 2)
        for first in firsts
        for second in seconds
        if first.overlaps(second)
        and not may_overlap((one.rpartition(".")[2], first), (other.rpartition(".")[2], second))
    ]
    if problems:
        raise ScenarioError(problems)
    pods, nodes, services, outside, *others = (
        tuple(network for found in given for network in found) for given in by_family.values()
    )
    names = (NODES, OUTSIDE, *(segment.name for segment in network.segments))
    return _Networks(dict(zip(names, (nodes, outside, *others), strict=True)), pods, services)


def _hand_out(
    networks: Iterable[IPNetwork],
    first: int,
    wishes: Sequence[_Wish],
    where: str,
    problems: list[str],
    taken: Collection[IPAddress] = (),
) -> dict[str, Addresses]:
    """Free addresses in order from ``first`` on, without the last one, which is IPv4's broadcast address."""
    given: dict[str, Addresses] = {wish.name: () for wish in wishes}
    for network in networks:
        numbered = (network[number] for number in range(first, network.num_addresses - 1))
        free = (address for address in numbered if address not in taken)
        short: list[_Wish] = []
        for wish in wishes:
            own = [address for address in wish.fixed if address.version == network.version]
            found = own or list(islice(free, wish.number))
            if own or len(found) == wish.number:
                given[wish.name] += tuple(found)
            else:
                short.append(wish)
        if short:
            others = f" and {len(short) - 1} more" if len(short) > 1 else ""
            problems.append(
                f"{short[0].position}: {short[0].name}{others}: no address is left in {where} ({network}), which "
                f"serves {len(wishes) - len(short)}; use fewer of them, or a larger network"
            )
    return given


def _pod_networks(
    networks: Iterable[IPNetwork], nodes: Sequence[_Wish], problems: list[str]
) -> dict[str, tuple[IPNetwork, ...]]:
    parts: dict[str, tuple[IPNetwork, ...]] = {node.name: () for node in nodes}
    for network in networks:
        mask = _NODE_MASK[Family.of(network)]
        size = 1 << (network.max_prefixlen - mask)
        room = network.num_addresses // size
        problems += [
            f"{node.position}: {node.name}: no /{mask} is left in spec.network.podCIDR ({network}): "
            f"it has room for {room} nodes; use fewer nodes, or a larger network"
            for node in nodes[room:]
        ]
        for number, node in enumerate(nodes[:room]):
            parts[node.name] += (type(network)((int(network.network_address) + number * size, mask)),)
    return {name: part for name, part in parts.items() if part}
