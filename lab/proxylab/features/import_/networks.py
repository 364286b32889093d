"""Finds the networks of the scenario from the addresses of the cluster, and replaces those that overlap."""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import collapse_addresses, ip_network
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork

_WIDEST: Final = {Family.IPV4: 16, Family.IPV6: 56}
_NODES: Final = {Family.IPV4: (24, 24), Family.IPV6: (64, 64)}
_NODE_PART: Final = {Family.IPV4: 24, Family.IPV6: 64}
_SERVICES: Final = {Family.IPV4: (16, 24), Family.IPV6: (112, 120)}
_INSTEAD: Final = {
    Family.IPV4: ("10.244.0.0/16", "172.18.0.0/16", "10.213.0.0/16", "192.168.0.0/16"),
    Family.IPV6: ("fd00:10:244::/56", "fd00:172:18::/64", "fd00:10:213::/56"),
}


class Networks(Struct, frozen=True):
    """The networks of pods, Services and nodes by family, and whether pods and nodes keep their addresses."""

    pods: tuple[IPNetwork, ...]
    services: tuple[IPNetwork, ...]
    nodes: tuple[IPNetwork, ...]
    pods_stay: bool
    nodes_stay: bool


def find_networks(
    families: Sequence[Family],
    *,
    nodes: Collection[IPAddress],
    pods: Collection[IPAddress | IPNetwork],
    services: Collection[IPAddress],
    service_networks: Sequence[IPNetwork] = (),
    number_of_nodes: int,
) -> Networks:
    """The networks of a cluster's addresses.

    Where pods have addresses among the nodes', as with some clouds' plugins, the nodes' network contains both, and the
    pod network is another one, for the pods that the lab adds. The lab chooses other networks where none contains the
    nodes without the Services.
    """
    around = _around_all(families, services, _SERVICES, _holding(families, [*nodes, *pods]), gateways=False)
    of_services = [next((one for one in service_networks if one.version == each.version), each) for each in around]
    of_nodes = _around_all(families, nodes, _NODES, of_services, chosen_apart_from=_holding(families, pods))
    nodes_stay = not _overlap(of_nodes, of_services)
    if not nodes_stay:
        of_nodes = _instead(families, [*of_services, *_holding(families, pods)])
    room = {family: _NODE_PART[family] - max(number_of_nodes - 1, 0).bit_length() for family in Family}
    widths = {family: (min(_WIDEST[family], room[family]), room[family]) for family in Family}
    of_pods = _around_all(families, pods, widths, [*of_services, *of_nodes], gateways=False)
    own = [each for each in pods if not hasattr(each, "prefixlen")]
    if nodes_stay and _overlap(of_pods, of_nodes) and set(own).isdisjoint(nodes):
        of_both = _around_all(families, [*nodes, *own], _NODES, ())
        if not _overlap(of_both, of_services):
            of_pods = _instead(families, [*of_services, *of_both])
            return Networks(tuple(of_pods), tuple(of_services), tuple(of_both), pods_stay=True, nodes_stay=True)
    pods_stay = not _overlap(of_pods, [*of_services, *of_nodes])
    if not pods_stay:
        of_pods = _instead(families, [*of_services, *of_nodes])
    return Networks(tuple(of_pods), tuple(of_services), tuple(of_nodes), pods_stay, nodes_stay)


def _around_all(
    families: Sequence[Family],
    inner: Iterable[IPAddress | IPNetwork],
    widths: dict[Family, tuple[int, int]],
    others: Sequence[IPNetwork],
    *,
    gateways: bool = True,
    chosen_apart_from: Sequence[IPNetwork] = (),
) -> list[IPNetwork]:
    """For each family the widest network of these widths around all addresses that overlaps no other.

    A family without addresses gets a usual network, which overlaps none of ``chosen_apart_from`` either.
    The first address of a network with a gateway is the gateway's, so no other address may be it, nor the one before
    it, nor the network's last.
    """
    addresses = list(inner)
    found = []
    for family in families:
        own = [each for each in addresses if Family.of(each) is family]
        if own:
            taken = {each for each in own if gateways and not hasattr(each, "prefixlen")}
            found.append(_around(own, *widths[family], others, taken))
        else:
            found += _instead([family], [*others, *chosen_apart_from, *found])
    return found


def _around(
    inner: Sequence[IPAddress | IPNetwork],
    widest: int,
    narrowest: int,
    others: Sequence[IPNetwork],
    taken: Collection[object],
) -> IPNetwork:
    network = _common(inner)
    while network.prefixlen and (network.prefixlen > narrowest or {network[0], network[1], network[-1]} & {*taken}):
        network = network.supernet()
    while network.prefixlen > widest and not _overlap([network.supernet()], others):
        network = network.supernet()
    return network


def _common(inner: Sequence[IPAddress | IPNetwork]) -> IPNetwork:
    networks = [ip_network(str(each)) for each in inner]
    network = networks[0]
    while not all(each.subnet_of(network) for each in networks):  # type: ignore[arg-type]  # all are of one family
        network = network.supernet()
    return network


def _holding(families: Sequence[Family], inner: Iterable[IPAddress | IPNetwork]) -> list[IPNetwork]:
    networks = [ip_network(str(each)) for each in inner]
    return [
        each
        for family in families
        for each in collapse_addresses([one for one in networks if Family.of(one) is family])  # type: ignore[type-var]
    ]


def _instead(families: Sequence[Family], others: Sequence[IPNetwork]) -> list[IPNetwork]:
    """A usual network of each family that overlaps no other."""
    return [
        next(network for network in map(ip_network, _INSTEAD[family]) if not _overlap([network], others))
        for family in families
    ]


def _overlap(networks: Iterable[IPNetwork], others: Sequence[IPNetwork]) -> bool:
    return any(network.version == other.version and network.overlaps(other) for network in networks for other in others)
