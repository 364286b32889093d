"""The networks of a scenario: the author's, and the defaults for every family.

The module checks the network against nodes and hosts. ``proxylab.plan`` assigns addresses.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import combinations
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPInterface, IPNetwork, may_overlap
from proxylab.scenario.document import Location, Problems, Spot, listed
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.matrix import Matrix
from proxylab.scenario.network import NODES, OUTSIDE, PODS, UPLINK, Network
from proxylab.scenario.nodes import ConnectionWay, LabNode
from proxylab.scenario.parts import Parts
from proxylab.scenario.pods import LoadBalancer
from proxylab.scenario.words import ClientAddress, Dials

_DEFAULTS: Final[Mapping[str, Mapping[Family, IPNetwork]]] = {
    "podCIDR": {Family.IPV4: ip_network("10.244.0.0/16"), Family.IPV6: ip_network("fd00:10:244::/56")},
    "serviceCIDR": {Family.IPV4: ip_network("10.96.0.0/16"), Family.IPV6: ip_network("fd00:10:96::/112")},
    "nodeCIDR": {Family.IPV4: ip_network("172.18.0.0/16"), Family.IPV6: ip_network("fd00:172:18::/64")},
    "outsideCIDR": {Family.IPV4: ip_network("203.0.113.0/24"), Family.IPV6: ip_network("2001:db8:113::/64")},
}
"""As in kind (pods, Services, nodes), and documentation addresses outside (RFC 5737, RFC 3849)."""

_Named = tuple[tuple[str, ...], IPNetwork]
"""A network and its path below ``spec.network``."""


def families_of(network: Network, matrix: Matrix) -> tuple[Family, ...]:
    """Every family that some case of the scenario has, the primary one of the first case first."""
    of_cases = matrix.families or (network.families,)
    return tuple(dict.fromkeys(family for families in of_cases for family in families))


def networks_of(network: Network, families: tuple[Family, ...]) -> dict[str, tuple[IPNetwork, ...]]:
    """The networks by their keys in ``spec.network``: for each family the author's network, or the default."""
    return {
        key: tuple(given.get(family, _DEFAULTS[key][family]) for family in families)
        for key, given in _given(network).items()
    }


def with_networks(network: Network, matrix: Matrix) -> Network:
    """The network with the defaults of every family that some case has."""
    networks = networks_of(network, families_of(network, matrix))
    return replace(
        network,
        pod_cidrs=networks["podCIDR"],
        service_cidrs=networks["serviceCIDR"],
        node_cidrs=networks["nodeCIDR"],
        outside_cidrs=networks["outsideCIDR"],
    )


def known_network(parts: Parts) -> Network | None:
    """The network with the defaults of every family that some case has; ``None`` if it is not well-formed."""
    return with_networks(parts.network, parts.matrix) if parts.network and parts.matrix else None


def check_network(parts: Parts, inventory: Inventory, problems: Problems) -> None:
    """Note networks that overlap, and unknown segments and devices. The plan finds networks that are too small."""
    spec = parts.location["spec"]
    segments = [NODES, OUTSIDE, *(each.name for each in (parts.network.segments if parts.network else ()))]
    if parts.network is not None:
        _check_networks(parts, parts.network, spec["network"], problems)
        _check_pools(parts, parts.network, problems)
        _check_on_segments(parts, parts.network, segments, problems)
        for index, routed in enumerate(parts.network.routed):
            _check_nodes(routed.nodes, spec["network"]["routed"][index]["nodes"], inventory, problems)
    for name, node in parts.nodes.items():
        if node is not None:
            _check_connections(node, parts.at("nodes", name), problems)
            _check_routes(node, parts.at("nodes", name), problems)
            _check_devices(node, segments if parts.network else None, parts.at("nodes", name), problems)
    for name, balancer in parts.load_balancers.items():
        if balancer is not None:
            _check_nodes(balancer.nodes, spec["loadBalancers"][name]["nodes"], inventory, problems)
            _check_announcer(balancer, spec["loadBalancers"][name], inventory, problems)


def _check_announcer(balancer: LoadBalancer, location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note an unknown node that answers for a pool, and keys that speak of several nodes or of no node's address."""
    if balancer.client_ip is ClientAddress.REPLACED and balancer.dials is not Dials.NODE_PORTS:
        what = "only a balancer that dials node ports hides its clients"
        problems.add(location["clientIP"].spot, what, allowed="needed: dials: nodePorts")
    if not balancer.announced_by:
        return
    if balancer.announced_by not in inventory.nodes:
        spot = location["announcedBy"].spot
        inventory.refuse(spot, balancer.announced_by, "a node", inventory.nodes, problems)
    dials = balancer.dials is Dials.NODE_PORTS
    for key, given in (("nodes", balancer.nodes), ("healthChecked", balancer.health_checked), ("dials", dials)):
        if given:
            what = f"{key} has no effect where {balancer.announced_by} alone answers for the pool"
            problems.add(location[key].key, what, allowed=f"remove {key}, or announcedBy")


def _given(network: Network) -> dict[str, dict[Family, IPNetwork]]:
    written = {
        "podCIDR": network.pod_cidrs,
        "serviceCIDR": network.service_cidrs,
        "nodeCIDR": network.node_cidrs,
        "outsideCIDR": network.outside_cidrs,
    }
    return {key: {Family.of(each): each for each in networks} for key, networks in written.items()}


def _check_networks(parts: Parts, network: Network, location: Location, problems: Problems) -> None:
    families = families_of(network, parts.matrix or Matrix())
    if parts.matrix is not None:
        _check_families(parts, network, families, problems)
    for (one, first), (other, second) in combinations(_all_networks(network, families), 2):
        _check_apart(location, (one, first), (other, second), problems)


def _check_families(parts: Parts, network: Network, families: Collection[Family], problems: Problems) -> None:
    """Note addresses of a family that no case has, and segments that lack a network of some case's family."""
    for location, address in _located(parts, network):
        if Family.of(address) not in families:
            what = f"{address} is {Family.of(address)}, a family that the scenario does not have"
            problems.add(location.spot, what, allowed=f"its families: {listed(families)}")
    for segment in network.segments:
        for family in (each for each in families if each not in map(Family.of, segment.cidrs)):
            where = parts.location["spec"]["network"]["segments"][segment.name]["cidr"]
            problems.add(where.spot, f"the segment has no {family} network", allowed="give one of each family")


def _located(parts: Parts, network: Network) -> Iterator[tuple[Location, IPAddress | IPInterface | IPNetwork]]:
    """Every address and network that the author wrote, except those of segments."""
    spec = parts.location["spec"]
    for key, given in _given(network).items():
        yield from ((spec["network"][key], each) for each in given.values())
    yield from ((each.location, each.address) for each in _fixed(parts, network))
    for index, routed in enumerate(network.routed):
        yield spec["network"]["routed"][index]["network"], routed.network
    for index, further in enumerate(network.further_service_cidrs):
        yield spec["network"]["furtherServiceCIDRs"][index], further
    for name, pod in parts.pods.items():
        if pod is not None:
            at = parts.at("pods", name)["addresses"]
            yield from ((at[index], each) for index, each in enumerate(pod.addresses))
    for name, node in parts.nodes.items():
        if node is not None:
            yield from _located_at_node(node, parts.at("nodes", name))
    for name, balancer in parts.load_balancers.items():
        if balancer is not None:
            at = spec["loadBalancers"][name]["pool"]
            yield from ((at[index], each) for index, each in enumerate(balancer.pool))


def _located_at_node(
    node: LabNode, location: Location
) -> Iterator[tuple[Location, IPAddress | IPInterface | IPNetwork]]:
    for index, address in enumerate(node.addresses):
        yield location["addresses"][index], address.interface
    for index, route in enumerate(node.routes):
        yield location["routes"][index]["to"], route.destination
    for daemon in node.daemons:
        if daemon.address is not None:
            yield location["daemons"][daemon.name]["address"], daemon.address
    for index, connection in enumerate(node.conntrack):
        yield location["conntrack"][index]["from"], connection.source.address


def _check_apart(location: Location, one: _Named, other: _Named, problems: Problems) -> None:
    """Note that two networks overlap, at the later one that the author wrote."""
    (first_path, first), (second_path, second) = one, other
    names = (first_path[-1], second_path[-1])
    if (
        first.version != second.version
        or not first.overlaps(second)
        or may_overlap((names[0], first), (names[1], second))
    ):
        return
    where = location
    for part in second_path if location[second_path[0]].exists else first_path:
        where = where[part]
    problems.add(where.spot, f"{names[0]} {first} and {names[1]} {second} overlap", allowed="keep them apart")


def _check_pools(parts: Parts, network: Network, problems: Problems) -> None:
    """Note pools that overlap another network: only the router may lead to a pool's addresses.

    Where a node answers for them, all machines of the nodes' segment lead to them, and their network has the pool.
    """
    families = families_of(network, parts.matrix or Matrix())
    others: list[tuple[str, IPNetwork]] = [(path[-1], each) for path, each in _all_networks(network, families)]
    for name, balancer in parts.load_balancers.items():
        for index, pool in enumerate(balancer.pool if balancer is not None else ()):
            spot = parts.location["spec"]["loadBalancers"][name]["pool"][index].spot
            own = [each for key, each in others if key == "nodeCIDR" and each.version == pool.version]
            is_announced = balancer is not None and bool(balancer.announced_by)
            if is_announced and own and not _is_inside(pool, own[0]):
                what = f"{pool} is no part of nodeCIDR {own[0]}, where {name} announces it"
                problems.add(spot, what, allowed=f"choose a part of {own[0]} without its first and its last address")
            for other, taken in others:
                if is_announced and other == "nodeCIDR":
                    continue
                if pool.version == taken.version and pool.overlaps(taken):
                    problems.add(spot, f"{pool} and {other} {taken} overlap", allowed="keep them apart")
            others.append((f"the pool of {name}", pool))


def _is_inside(pool: IPNetwork, segment: IPNetwork) -> bool:
    """Whether the segment has all of the pool's addresses, and none of them is its own first or last one."""
    return pool[0] in segment and pool[-1] in segment and segment[0] not in pool and segment[-1] not in pool


def _all_networks(network: Network, families: tuple[Family, ...]) -> Iterator[_Named]:
    for key, networks in networks_of(network, families).items():
        yield from (((key,), each) for each in networks)
    yield from ((("furtherServiceCIDRs",), each) for each in network.further_service_cidrs)
    for segment in network.segments:
        yield from ((("segments", segment.name), each) for each in segment.cidrs)


def _check_nodes(nodes: Sequence[str], location: Location, inventory: Inventory, problems: Problems) -> None:
    for index, node in enumerate(nodes):
        if node not in inventory.nodes:
            inventory.refuse(location[index].spot, node, "a node", inventory.nodes, problems)


def _check_segment(name: str, segments: list[str], spot: Spot, problems: Problems) -> None:
    if name not in segments:
        problems.add(
            spot,
            f"there is no segment {name}",
            allowed=f"allowed: {listed(segments)}",
            word=name,
            known=segments,
        )


def _own_addresses_at(parts: Parts, name: str) -> Location:
    """The place of a node's own addresses: its entry, or the status of a manifest."""
    location = parts.at("nodes", name)
    if location.path[-2:] != ("metadata", "name"):
        return location["internalIPs"]
    return Location(location.document, (*location.path[:-2], "status", "addresses"))


class _FixedAddress(NamedTuple):
    """An address that the author gives the router, a node or a host on a segment, and its place."""

    segment: str
    location: Location
    address: IPAddress


def _fixed(parts: Parts, network: Network) -> Iterator[_FixedAddress]:
    """Every fixed address."""
    spec = parts.location["spec"]
    given = [(name, spec["network"]["routers"][name], own) for name, own in network.routers.items()]
    given += [(NODES, _own_addresses_at(parts, node.name), node.internal_ips) for node in parts.nodes.values() if node]
    given += [
        (host.segment, spec["hosts"][host.name]["addresses"], host.fixed_addresses)
        for host in filter(None, parts.hosts.values())
    ]
    for segment, location, addresses in given:
        listed_there = isinstance(location.value, list)
        for index, address in enumerate(addresses):
            yield _FixedAddress(segment, location[index] if listed_there else location, address)


def _check_on_segments(parts: Parts, network: Network, segments: list[str], problems: Problems) -> None:
    """Note unknown segments, and a node's second address of a family."""
    spec = parts.location["spec"]
    for name in network.routers:
        _check_segment(name, segments, spec["network"]["routers"][name].key, problems)
    for name in network.mtu:
        _check_segment(name, [*segments, PODS], spec["network"]["mtu"][name].key, problems)
    for host in filter(None, parts.hosts.values()):
        _check_segment(host.segment, segments, spec["hosts"][host.name]["segment"].spot, problems)
    for node in filter(None, parts.nodes.values()):
        for index, address in enumerate(node.internal_ips):
            if Family.of(address) in map(Family.of, node.internal_ips[:index]):
                spot = _own_addresses_at(parts, node.name)[index].spot
                problems.add(spot, f"a second {Family.of(address)} address", allowed="one of each family")
    if parts.matrix is not None:
        _check_fixed(parts, network, parts.matrix, problems)


def _check_fixed(parts: Parts, network: Network, matrix: Matrix, problems: Problems) -> None:
    """Note fixed addresses that no machine on their segment can have."""
    networks = networks_of(network, families_of(network, matrix))
    there = {NODES: ("nodeCIDR", networks["nodeCIDR"]), OUTSIDE: ("outsideCIDR", networks["outsideCIDR"])}
    there |= {segment.name: (f"segments.{segment.name}", segment.cidrs) for segment in network.segments}
    for segment, location, address in _fixed(parts, network):
        key, cidrs = there.get(segment, ("", ()))
        if address.version not in [each.version for each in cidrs]:
            continue  # another check refuses the segment or the family
        own = next((each for each in cidrs if address in each), None)
        if own is None:
            allowed = f"allowed: an address in spec.network.{key}, {listed(map(str, cidrs))}"
            problems.add(location.spot, f"{address} is not on the segment {segment}", allowed=allowed)
        elif address in (own[0], own[-1]):
            problems.add(location.spot, f"{address} is the first or last of {own}", allowed="choose one between them")


def _check_connections(node: LabNode, location: Location, problems: Problems) -> None:
    """Note conntrack entries that translate between families, and those that the table cannot hold together."""
    ways: list[ConnectionWay] = []
    for index, connection in enumerate(node.conntrack):
        at = location["conntrack"][index]
        for key, end in connection.ends.items():
            if end.address.version != connection.source.address.version:
                what = f"{end} and {connection.source} are not of one IP family"
                problems.add(at[key].spot, what, allowed="choose one family")
        if connection.last_port is not None and connection.last_port <= connection.source.port:
            allowed = f"allowed: {connection.source.port + 1} to 65535, above the port in from"
            problems.add(at["lastPort"].spot, f"is not above {connection.source.port}", allowed=allowed)
        elif connection.last_port is not None and connection.reply_to is not None:
            what = "gives all these connections one source, which the table cannot hold"
            problems.add(at["replyTo"].spot, what, allowed="remove replyTo or lastPort")
        elif any(way.meets(other) for way in connection.ways for other in ways):
            problems.add(
                at.spot, "another entry has the same flow, or the same replies", allowed="remove one of the two"
            )
        ways += connection.ways


def _check_routes(node: LabNode, location: Location, problems: Problems) -> None:
    """Note a route that the kernel refuses beside another one to the same destination."""
    taken: dict[tuple[IPNetwork, IPNetwork | None], str] = {}
    for index, route in enumerate(node.routes):
        key = (route.destination, route.source)
        if key in taken:
            allowed = "add from, which makes it a policy route, or choose another destination"
            problems.add(location["routes"][index]["to"].spot, f"the node has {taken[key]} already", allowed=allowed)
        taken.setdefault(key, f"a route to {route.destination} through {route.device}")


def _check_devices(node: LabNode, segments: list[str] | None, location: Location, problems: Problems) -> None:
    for uplink in node.uplinks:
        name = uplink.device
        if name in (UPLINK, "lo"):
            problems.add(
                location["uplinks"][name].key,
                f"the node has a device {name} already",
                allowed="choose another name, such as eth1",
            )
        if segments is not None:
            _check_segment(uplink.segment, segments, location["uplinks"][name]["segment"].spot, problems)
    devices = [UPLINK, *(each.device for each in node.uplinks), "lo"]
    named = [(location["addresses"][index]["device"], each.device) for index, each in enumerate(node.addresses)]
    named += [(location["routes"][index]["device"], each.device) for index, each in enumerate(node.routes)]
    for where, device in named:
        if device not in devices:
            allowed = f"allowed: {listed(devices)}"
            problems.add(where.spot, f"the node has no device {device}", allowed=allowed, word=device, known=devices)
