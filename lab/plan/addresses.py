"""Who has which IP and MAC address.

Owns: the address plan of a scenario's networks, and what happens when one of them runs out.
Must not: know devices or routes (``topology`` does).

In every network the first address is the gateway's. Nodes stand from the second on, as in kind; each has a /24 of the
pod network, as kube-controller-manager's ``--node-cidr-mask-size`` gives it; pods and outside hosts begin at the tenth,
which leaves room to write addresses by hand beside them.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Final

from lab.errors import ScenarioError
from lab.ip import IPNetwork
from lab.scenario.model import Position, Scenario

__all__ = ["AddressPlan", "MacAddresses", "allocate_addresses"]

_GATEWAY: Final = 1
_FIRST_NODE: Final = 2
_FIRST_POD: Final = 10
_FIRST_HOST: Final = 10
_NODE_MASK: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """All IPv4 addresses of a lab, by the names of the scenario.

    ``pod_network`` and ``gateway`` are by node: its part of the pod network, and its own address in it.
    """

    node_network: IPv4Network
    outside_network: IPv4Network
    service_network: IPv4Network
    node: Mapping[str, IPv4Address]
    pod: Mapping[str, IPv4Address]
    host: Mapping[str, IPv4Address]
    pod_network: Mapping[str, IPv4Network]
    router_at_nodes: IPv4Address
    router_outside: IPv4Address

    def gateway(self, node: str) -> IPv4Address:
        """What the pods of ``node`` have as their gateway: the address of every pod device of the node."""
        return self.pod_network[node][_GATEWAY]


def allocate_addresses(scenario: Scenario) -> AddressPlan:
    """Give every node, pod and host of the scenario its addresses.

    Raises:
        ScenarioError: a line for everything that gets none, or for networks that overlap.
    """
    pods, nodes, services, outside = _networks(scenario)
    problems: list[str] = []
    node_names = [(node.name, node.position) for node in scenario.nodes]
    node = _hand_out(nodes, _FIRST_NODE, node_names, "spec.network.nodeCIDRs", problems)
    host_names = [(host.name, host.position) for host in scenario.hosts]
    host = _hand_out(outside, _FIRST_HOST, host_names, "spec.network.outsideCIDRs", problems)
    pod_network = _pod_networks(pods, node_names, problems)
    on_node: dict[str, list[tuple[str, Position]]] = {name: [] for name in pod_network}
    for group in scenario.pods:
        for ordinal, name in enumerate(group.pod_names):
            if group.node_of(ordinal) in on_node:
                on_node[group.node_of(ordinal)].append((name, group.position))
    pod: dict[str, IPv4Address] = {}
    for name, network in pod_network.items():
        where = f"the pod network of {name}, a /{_NODE_MASK} of spec.network.podCIDRs"
        pod |= _hand_out(network, _FIRST_POD, on_node[name], where, problems)
    if problems:
        raise ScenarioError(problems)
    return AddressPlan(
        node_network=nodes,
        outside_network=outside,
        service_network=services,
        node=node,
        pod=pod,
        host=host,
        pod_network=pod_network,
        router_at_nodes=nodes[_GATEWAY],
        router_outside=outside[_GATEWAY],
    )


def _networks(scenario: Scenario) -> Iterator[IPv4Network]:
    """The IPv4 networks for pods, nodes, services and outside hosts."""
    cidrs: dict[str, Sequence[IPNetwork]] = {
        "podCIDRs": scenario.network.pod_cidrs,
        "nodeCIDRs": scenario.network.node_cidrs,
        "serviceCIDRs": scenario.network.service_cidrs,
        "outsideCIDRs": scenario.network.outside_cidrs,
    }
    ipv4 = {name: [cidr for cidr in given if isinstance(cidr, IPv4Network)] for name, given in cidrs.items()}
    problems = [
        f"{scenario.file}: spec.network.{name}: expected one IPv4 network, found {len(given)}"
        for name, given in ipv4.items()
        if len(given) != 1
    ]
    problems += [
        f"{scenario.file}: spec.network.{one}: {first} and spec.network.{other} {second} overlap; "
        "an address can only be in one place"
        for (one, firsts), (other, seconds) in combinations(ipv4.items(), 2)
        for first in firsts
        for second in seconds
        if first.overlaps(second)
    ]
    if problems:
        raise ScenarioError(problems)
    return (given[0] for given in ipv4.values())


def _hand_out(
    network: IPv4Network, first: int, names: Sequence[tuple[str, Position]], where: str, problems: list[str]
) -> dict[str, IPv4Address]:
    """Addresses in order from ``first`` on, short of the broadcast address."""
    room = max(0, network.num_addresses - 1 - first)
    problems += [
        f"{position}: {name}: no address is left in {where} ({network}): {room} have one; "
        "use fewer of them, or a larger network"
        for name, position in names[room:]
    ]
    return {name: network[first + number] for number, (name, _) in enumerate(names[:room])}


def _pod_networks(
    network: IPv4Network, nodes: Sequence[tuple[str, Position]], problems: list[str]
) -> dict[str, IPv4Network]:
    size = 1 << (network.max_prefixlen - _NODE_MASK)
    room = network.num_addresses // size
    problems += [
        f"{position}: {name}: no /{_NODE_MASK} is left in spec.network.podCIDRs ({network}): {room} nodes have one; "
        "use fewer nodes, or a larger network"
        for name, position in nodes[room:]
    ]
    return {
        name: IPv4Network((int(network.network_address) + number * size, _NODE_MASK))
        for number, (name, _) in enumerate(nodes[:room])
    }


class MacAddresses:
    """Hands out MAC addresses: locally administered, and the same for the same device in every run."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim(self, namespace: str, device: str) -> str:
        """The address of a device, from the hash of its name; the lab has no other with it."""
        attempt = 0
        while True:
            digest = hashlib.sha256(f"{namespace}\0{device}\0{attempt}".encode()).digest()
            mac = ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
            if mac not in self._taken:
                self._taken.add(mac)
                return mac
            attempt += 1
