"""The checks of fixed addresses: each must have one owner and be valid where it is."""

from collections.abc import Iterator
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.plan.addresses import AddressPlan
from proxylab.scenario.hosts import Host
from proxylab.scenario.model import Scenario
from proxylab.scenario.nodes import Node
from proxylab.scenario.pods import PodGroup

__all__ = ["address_conflicts"]

_LOOPBACK: Final = "lo"
"""No segment sees an address on this device, so several nodes may have it, as they do for balanced addresses."""


def address_conflicts(scenario: Scenario, addresses: AddressPlan) -> list[str]:
    """A line for every fixed address that is not available, in the order of nodes, hosts and pods.

    Args:
        scenario: the scenario.
        addresses: its address plan.
    """
    owners = dict(_owners(scenario, addresses))
    return [
        *(line for machine in scenario.machines for line in _fixed_problems(machine, owners)),
        *(line for group in scenario.pods for line in _pod_problems(scenario, addresses, owners, group)),
        *_node_problems(scenario, owners),
    ]


def _owners(scenario: Scenario, addresses: AddressPlan) -> Iterator[tuple[IPAddress, str]]:
    """The owners of addresses that the lab chooses; for the same address, a later entry is more exact.

    Without a bridge, pods have routes of their own, so that a network's first and last addresses are like any other.
    """
    bridged = scenario.network.pod_network == "bridge"
    for name, parts in addresses.pod_network.items():
        for part in parts:
            if bridged or scenario.network.inter_node == "vxlan":
                yield part.network_address, f"the network address of {name}'s pods"
            if bridged and part.version == 4:
                yield part.broadcast_address, f"the broadcast address of {name}'s pods"
    for own in addresses.router.values():
        yield from ((address, "the router's") for address in own)
    for (name, device), own in addresses.uplink.items():
        yield from ((address, f"{name}'s on {device}") for address in own)
    for machine in scenario.machines:
        own = {**addresses.node, **addresses.host}[machine.name]
        yield from ((address, f"{machine.name}'s") for address in own if address not in machine.fixed_addresses)


def _fixed_problems(machine: Node | Host, owners: dict[IPAddress, str]) -> Iterator[str]:
    """The mistakes in a machine's own fixed addresses; registers the machine as the owner of the valid ones."""
    for address in machine.fixed_addresses:
        if (owner := owners.setdefault(address, f"{machine.name}'s")) != f"{machine.name}'s":
            yield f"{machine.position}: {machine.name}: {address} is {owner} already; choose another one"


def _pod_problems(
    scenario: Scenario, addresses: AddressPlan, owners: dict[IPAddress, str], group: PodGroup
) -> Iterator[str]:
    """The mistakes in a pod's fixed addresses; registers the pod as the owner of the valid ones."""
    node = group.node_of(0)
    for address in group.addresses:
        what = f"{group.position}: {group.name}: {address}"
        family = Family.of(address)
        networks = [network for network in scenario.network.pod_cidrs if Family.of(network) is family]
        bridged = scenario.network.pod_network == "bridge"
        if bridged:
            networks = [part for part in addresses.pod_network[node] if Family.of(part) is family]
        if group.replicas is not None or group.host_network:
            yield f"{what}: only a single pod with its own network namespace can have a fixed address; remove it"
        elif not networks:
            yield f"{what}: the lab has no {family}; add it to spec.network.families"
        elif not any(address in network for network in networks):
            where = f"{node}'s part of the pod network (a bridge is one network)" if bridged else "the pod network"
            yield f"{what} is not in {where}; choose one of {', '.join(map(str, networks))}"
        elif (owner := owners.setdefault(address, f"{group.name}'s")) != f"{group.name}'s":
            yield f"{what} is {owner} already; choose another one"


def _node_problems(scenario: Scenario, owners: dict[IPAddress, str]) -> Iterator[str]:
    """The mistakes in the further addresses of nodes; on ``lo`` an address may have several owners."""
    for node in scenario.nodes:
        for device, interface in ((each.device, each.interface) for each in node.addresses):
            what = f"{node.position}: {node.name}: {interface.ip}"
            if Family.of(interface) not in scenario.network.families:
                yield f"{what}: the lab has no {Family.of(interface)}; add it to spec.network.families"
            elif device != _LOOPBACK:
                owner = owners.get(interface.ip)
                owners[interface.ip] = f"{node.name}'s on {device}"
                if owner is not None:
                    yield f"{what} is {owner} already; choose another one"
