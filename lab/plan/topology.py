"""The wire of a scenario: which namespaces there are, how they are linked, and what each routes where.

Owns: ``draw``.
Must not: give out addresses (``addresses``), names (``names``) or sysctl values (``sysctls``).

            fabric                                    router
    ┌──────────────────────┐     nodes    ┌────────────────────────────┐
    │ bridge nodes ────────┼──────────────┤ default gateway of nodes   │
    │ bridge outside ──────┼──────────────┤ and of outside hosts       │
    └──┬────────┬────────┬─┘    outside   └────────────────────────────┘
       │ eth0   │ eth0   │ eth0
    ┌──┴───┐ ┌──┴───┐ ┌──┴───┐
    │node-a│ │node-b│ │client│   outside hosts stand on the bridge outside
    └──┬───┘ └──┬───┘ └──────┘
       │ echo-1 │ echo-2         one veth for each pod, named after it
    ┌──┴───┐ ┌──┴───┐
    │echo-1│ │echo-2│ eth0
    └──────┘ └──────┘

Pods are wired as kind's CNI does it (``podNetwork: ptp``): the node's end of every pod's veth bears the node's gateway
address, and permanent neighbours on both ends make ARP superfluous. The pod's own address is a /32 with everything else
by way of the gateway, so a pod reaches its neighbour on the same node through the node's IP stack and its rules, never
past them. The gateway address has global scope: a masquerade towards a pod then finds it on the outgoing device
(inet_select_addr, net/ipv4/devinet.c).

Nodes route each other's pod networks to each other directly (``interNode: host-gw``).
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import Final

from lab.errors import ScenarioError
from lab.ip import Family, Protocol
from lab.plan.addresses import AddressPlan, allocate_addresses
from lab.plan.draft import Draft, Place
from lab.plan.model import Listener, Neighbour, Plan, Role
from lab.plan.names import FABRIC, NODES, OUTSIDE, OWN_NAMESPACES, ROUTER, UPLINK
from lab.plan.sysctls import DEVICES_AT_HAND, device_of, dotted
from lab.scenario.model import HostTarget, Position, Scenario

__all__ = ["draw"]

_EVERYWHERE: Final = IPv4Network("0.0.0.0/0")


def draw(scenario: Scenario) -> Plan:
    """The plan of a scenario: the same scenario always gives the same plan.

    Raises:
        ScenarioError: addresses run out, a name cannot be had, or the wire asked for cannot be drawn.
    """
    problems = [*_wire_problems(scenario), *_name_problems(scenario), *_sysctl_problems(scenario)]
    if problems:
        raise ScenarioError(problems)
    addresses = allocate_addresses(scenario)
    draft = Draft()
    fabric = draft.place(FABRIC, Role.SEGMENT)
    draft.bridge(fabric, NODES)
    if scenario.hosts:
        draft.bridge(fabric, OUTSIDE)
    _add_router(scenario, addresses, draft, fabric)
    nodes = {node.name: draft.place(node.name, Role.NODE, node.sysctls) for node in scenario.nodes}
    for node in nodes.values():
        _wire_node(node, addresses, draft, fabric)
    for group in scenario.pods:
        for ordinal, name in enumerate(group.pod_names):
            pod = draft.place(name, Role.POD)
            pod.listeners += [Listener(name, port.protocol, port.port) for port in group.ports]
            _wire_pod(pod, nodes[group.node_of(ordinal)], addresses, draft)
    for host in scenario.hosts:
        place = draft.place(host.name, Role.HOST)
        place.listeners += _dialled(scenario, host.name)
        _wire_host(place, addresses, draft, fabric)
    return draft.finished()


def _add_router(scenario: Scenario, addresses: AddressPlan, draft: Draft, fabric: Place) -> None:
    router = draft.place(ROUTER, Role.ROUTER)
    inner = draft.link(fabric, ROUTER, router, NODES, master=NODES).second.device
    router.address(inner, addresses.router_at_nodes, addresses.node_network.prefixlen)
    if scenario.hosts:
        outer = draft.link(fabric, f"{ROUTER}-{OUTSIDE}", router, OUTSIDE, master=OUTSIDE).second.device
        router.address(outer, addresses.router_outside, addresses.outside_network.prefixlen)
    for name, network in addresses.pod_network.items():
        router.route(network, inner, via=addresses.node[name])
    # Cluster IPs are no addresses of the wire; from outside they are reached by a static route to some node. Which one
    # an errand needs, its detour says; until then it is the first.
    router.route(addresses.service_network, inner, via=next(iter(addresses.node.values())))


def _wire_node(node: Place, addresses: AddressPlan, draft: Draft, fabric: Place) -> None:
    uplink = draft.link(fabric, node.name, node, UPLINK, master=NODES).second.device
    node.address(uplink, addresses.node[node.name], addresses.node_network.prefixlen)
    node.route(_EVERYWHERE, uplink, via=addresses.router_at_nodes)
    for name, network in addresses.pod_network.items():
        if name != node.name:
            node.route(network, uplink, via=addresses.node[name])


def _wire_pod(pod: Place, node: Place, addresses: AddressPlan, draft: Draft) -> None:
    link = draft.link(node, pod.name, pod, UPLINK)
    outer, inner = link.ends
    address, gateway = addresses.pod[pod.name], addresses.gateway(node.name)
    node.address(outer.device, gateway)
    node.route(IPv4Network(address), outer.device)
    node.neighbours.append(Neighbour(outer.device, address, inner.mac))
    pod.address(inner.device, address)
    pod.route(IPv4Network(gateway), inner.device)
    pod.route(_EVERYWHERE, inner.device, via=gateway)
    pod.neighbours.append(Neighbour(inner.device, gateway, outer.mac))


def _wire_host(host: Place, addresses: AddressPlan, draft: Draft, fabric: Place) -> None:
    device = draft.link(fabric, host.name, host, UPLINK, master=OUTSIDE).second.device
    host.address(device, addresses.host[host.name], addresses.outside_network.prefixlen)
    host.route(_EVERYWHERE, device, via=addresses.router_outside)


def _dialled(scenario: Scenario, host: str) -> Iterable[Listener]:
    """A host answers on the ports that the scenario's probes dial: nothing else says what it listens on."""
    listeners = (
        Listener(host, probe.send.protocol or Protocol.TCP, probe.target.port)
        for probe in scenario.probes
        if isinstance(probe.target, HostTarget) and probe.target.host == host
    )
    return dict.fromkeys(listeners)


def _wire_problems(scenario: Scenario) -> Iterator[str]:
    if not scenario.nodes:
        yield f"{scenario.file}: spec.nodes: a lab needs at least one node"
    network = scenario.network
    for key, value, possible in (
        ("podNetwork", network.pod_network, "ptp"),
        ("interNode", network.inter_node, "host-gw"),
        ("families", ", ".join(network.families), Family.IPV4.value),
    ):
        if value != possible:
            yield f"{scenario.file}: spec.network.{key}: {value!r} cannot be drawn; use {possible}"


def _name_problems(scenario: Scenario) -> Iterator[str]:
    seen: dict[str, Position] = {}
    for name, position in _places(scenario):
        if name in OWN_NAMESPACES:
            own = " and ".join(sorted(OWN_NAMESPACES))
            yield f"{position}: {name}: {own} are names of the lab's own namespaces; choose another name"
        elif name in seen:
            yield f"{position}: {name}: {seen[name]} has this name already; nodes, pods and hosts share one name space"
        seen.setdefault(name, position)
    nodes = {node.name for node in scenario.nodes}
    for group in scenario.pods:
        for name in sorted(set(group.nodes) - nodes):
            yield f"{group.position}: {group.name}: there is no node {name!r}; there are {', '.join(sorted(nodes))}"


def _places(scenario: Scenario) -> Iterator[tuple[str, Position]]:
    for node in scenario.nodes:
        yield node.name, node.position
    for group in scenario.pods:
        for name in group.pod_names:
            yield name, group.position
    for host in scenario.hosts:
        yield host.name, host.position


def _sysctl_problems(scenario: Scenario) -> Iterator[str]:
    for node in scenario.nodes:
        for name in map(dotted, node.sysctls):
            device = device_of(name)
            if not name.startswith("net."):
                yield f"{node.position}: {node.name}: sysctl {name}: only those below net belong to a node's namespace"
            elif device is not None and device not in DEVICES_AT_HAND:
                yield (
                    f"{node.position}: {node.name}: sysctl {name}: there is no device {device!r} yet when sysctls are "
                    f"written; use one of {', '.join(DEVICES_AT_HAND)}"
                )
