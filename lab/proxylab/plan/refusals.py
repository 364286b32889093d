"""What the plan refuses: names, routes, ports and addresses that are well-formed, but that no lab can have.

The module also refuses probes between pods that share a network namespace; a pod that reaches itself is a normal
hairpin. Packets between pods of one namespace never leave it, so no proxy sees them. If a proxy's rules lead from one
to the other, the packet comes back from the network with a source address of the same namespace: the kernel drops it as
a martian, or delivers the answer over the loopback device, where no rule translates it back.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import EndpointSlice
from proxylab.errors import ScenarioError
from proxylab.plan.addresses import AddressPlan
from proxylab.plan.device_names import OWN_NAMESPACES
from proxylab.plan.model import Plan, PodPlacement, Role
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, OUTSIDE
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pods import Host, PodGroup
from proxylab.scenario.probes import AddressTarget, PodTarget, Probe, ServiceTarget
from proxylab.scenario.words import Position

_LOOPBACK: Final = "lo"
"""No segment sees an address on this device, so several nodes may have it, as they do for balanced addresses."""


def refusals(scenario: Scenario) -> list[str]:
    """A line for every mistake that makes the network impossible, whatever its addresses are."""
    return [*_name_problems(scenario), *_route_problems(scenario), *_port_problems(scenario)]


def _name_problems(scenario: Scenario) -> Iterator[str]:
    own = " and ".join(sorted(OWN_NAMESPACES))
    for name, position in placements(scenario):
        if name in OWN_NAMESPACES:
            yield f"{position}: {name}: {own} are the lab's own network namespaces; choose another name"
    for segment in scenario.network.segments:
        if segment.name in (NODES, OUTSIDE):
            yield f"{segment.position}: segment {segment.name}: another segment has this name; rename one of the two"


def placements(scenario: Scenario) -> Iterator[tuple[str, Position]]:
    """The nodes, pods and hosts, with the places where the author gives them."""
    for node in scenario.nodes:
        yield node.name, node.position
    for group in scenario.pods:
        for name in group.pod_names:
            yield name, group.position
    for host in scenario.hosts:
        yield host.name, host.position


def _route_problems(scenario: Scenario) -> Iterator[str]:
    for node in scenario.nodes:
        for route in node.routes:
            what = f"{node.position}: {node.name}: route to {route.destination}"
            if route.device == _LOOPBACK:
                yield f"{what}: no packet leaves a node through {_LOOPBACK}; use another device"
            for word, other in (("via", route.via), ("from", route.source)):
                if other is not None and other.version != route.destination.version:
                    yield f"{what}: {word} {other} is of the other IP family; use one of the same family"


def _port_problems(scenario: Scenario) -> Iterator[str]:
    listening = {
        (node.name, daemon.protocol.value, daemon.port): daemon.name
        for node in scenario.nodes
        for daemon in node.daemons
    }
    for group in scenario.pods:
        if not group.host_network:
            continue
        for ordinal, name in enumerate(group.pod_names):
            for port in group.ports:
                placement = (group.node_of(ordinal), port.protocol.value, port.port)
                other = listening.setdefault(placement, name)
                if other != name:
                    yield (
                        f"{group.position}: {name}: {other} listens on {port.protocol} {port.port} of {placement[0]} "
                        "already; pods on the host network share their node's ports"
                    )


def address_conflicts(scenario: Scenario, addresses: AddressPlan) -> list[str]:
    """A line for every fixed address that is not available, in the order of nodes, hosts and pods."""
    owners = dict(_owners(scenario, addresses))
    return [
        *(line for machine in scenario.machines for line in _fixed_problems(machine, owners)),
        *(line for group in scenario.pods for line in _pod_problems(scenario, addresses, owners, group)),
        *_node_problems(scenario, owners),
        *_renumbering_problems(scenario, addresses, owners),
        *_pool_problems(scenario, owners),
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


def _fixed_problems(machine: LabNode | Host, owners: dict[IPAddress, str]) -> Iterator[str]:
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
        # Some clouds' plugins give pods addresses of the nodes' own network. Each pod has a route of its own then.
        both = (*scenario.network.pod_cidrs, *scenario.network.node_cidrs)
        networks = [network for network in both if Family.of(network) is family]
        bridged = scenario.network.pod_network == "bridge"
        if bridged:
            networks = [part for part in addresses.pod_network[node] if Family.of(part) is family]
        if not any(address in network for network in networks):
            where = (
                f"{node}'s part of the pod network (a bridge is one network)"
                if bridged
                else "the pod network or the nodes'"
            )
            yield f"{what} is not in {where}; choose one of {', '.join(map(str, networks))}"
        elif (owner := owners.setdefault(address, f"{group.name}'s")) != f"{group.name}'s":
            yield f"{what} is {owner} already; choose another one"


def _node_problems(scenario: Scenario, owners: dict[IPAddress, str]) -> Iterator[str]:
    """The mistakes in the further addresses of nodes; on ``lo`` an address may have several owners."""
    for node in scenario.nodes:
        for device, interface in ((each.device, each.interface) for each in node.addresses):
            what = f"{node.position}: {node.name}: {interface.ip}"
            if device != _LOOPBACK:
                owner = owners.get(interface.ip)
                owners[interface.ip] = f"{node.name}'s on {device}"
                if owner is not None:
                    yield f"{what} is {owner} already; choose another one"


def _renumbering_problems(scenario: Scenario, addresses: AddressPlan, owners: dict[IPAddress, str]) -> Iterator[str]:
    """The mistakes in the addresses that nodes get in steps."""
    networks = addresses.segments[NODES]
    for step in scenario.steps:
        for name, change in step.change.nodes.items():
            what = f"{step.position}: step {step.name!r}: {name}"
            for address in change.internal_ips:
                own = [each for each in networks if each.version == address.version]
                if own and address not in own[0]:
                    yield f"{what}: {address} is not in the nodes' network; choose one of {own[0]}"
                owner = owners.setdefault(address, f"{name}'s")
                if owner != f"{name}'s":
                    yield f"{what}: {address} is {owner} already; choose another one"


def _pool_problems(scenario: Scenario, owners: dict[IPAddress, str]) -> Iterator[str]:
    """The addresses of announced pools that a machine has, which would answer for them, too."""
    for balancer in (each for each in scenario.load_balancers if each.announced_by):
        for address, owner in owners.items():
            if any(address in pool for pool in balancer.pool):
                what = f"{balancer.position}: load balancer {balancer.name}: {address} of its pool is {owner}"
                yield f"{what}; choose another pool in nodeCIDR"


def refuse_neighbours(scenario: Scenario, plan: Plan, slices: Iterable[EndpointSlice]) -> None:
    """Refuse probes from a pod to another pod of its own namespace, directly or through a Service.

    Raises:
        ScenarioError: with a line for each such probe.
    """
    known = tuple(slices)
    neighbours = _neighbours(plan)
    problems = [
        f"{probe.position}: probe {probe.name!r}: {probe.source.name} shares its network namespace with "
        f"{reached.name}, and packets between them never leave it; send from a pod with its own namespace"
        for probe in scenario.probes
        if probe.source.name in neighbours
        for reached in _reached(probe, neighbours[probe.source.name], known)
    ]
    if problems:
        raise ScenarioError(problems)


def _reached(
    probe: Probe, neighbours: Sequence[PodPlacement], slices: Iterable[EndpointSlice]
) -> Iterator[PodPlacement]:
    """The first of the sender's neighbours that the probe may reach."""
    match probe.target:
        case PodTarget(pod=name):
            found = [each for each in neighbours if each.name == name]
        case AddressTarget(address=address):
            found = [each for each in neighbours if address in each.addresses]
        case ServiceTarget(namespace=namespace, service=service):
            behind = {
                address
                for slice_ in slices
                if (slice_.namespace, slice_.service) == (namespace, service)
                for endpoint in slice_.endpoints
                if endpoint.ready or endpoint.serving
                for address in endpoint.addresses
            }
            found = [each for each in neighbours if not behind.isdisjoint(each.addresses)]
        case _:
            found = []
    yield from found[:1]


def _neighbours(plan: Plan) -> dict[str, list[PodPlacement]]:
    """By name, each pod that shares a namespace with other pods, and those.

    On the host network a pod has none: the node's rules see every packet.
    """
    nodes = {each.name for each in plan.namespaces if each.role is Role.NODE}
    sharing: dict[str, list[PodPlacement]] = {}
    for pod in plan.pods:
        if pod.namespace not in nodes:
            sharing.setdefault(pod.namespace, []).append(pod)
    return {
        pod.name: [each for each in pods if each is not pod]
        for pods in sharing.values()
        if len(pods) > 1
        for pod in pods
    }
