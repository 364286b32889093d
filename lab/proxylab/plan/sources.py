"""The source address of masqueraded packets, and of a namespace's own packets.

MASQUERADE gives a packet the address that the kernel selects for its output device and its next hop
(``selected_source``; nf_nat_masquerade_ipv4 and _ipv6, net/netfilter/nf_nat_masquerade.c). So a packet that leaves a
node through its uplink has the node's address; a packet to a pod of the same node has the gateway's, or with unnumbered
pods the node's; a packet through the overlay has the VXLAN device's.
"""

from collections.abc import Collection

from proxylab.addresses import Family, IPAddress
from proxylab.plan.forwarding import next_hop, next_hops, route_to
from proxylab.plan.model import Plan, PlannedNamespace, Role, Route
from proxylab.plan.resolved import MasqueradedAs, ResolvedProbe
from proxylab.plan.source_selection import selected_source
from proxylab.scenario.network import UPLINK


def snat_source(
    plan: Plan, node: str, device: str, family: Family = Family.IPV4, destination: IPAddress | None = None
) -> IPAddress:
    """The source of packets that ``node`` masquerades through its ``uplink``, to its ``pods``, or ``overlay``.

    Where a node has several addresses, its source depends on the destination. Without one, the packets are for a pod
    behind the device, or else for the default gateway.

    Raises:
        LookupError: there is no such node, or it has no device of that kind or no address of that family. The message
            lists the known ones.
    """
    nodes = [namespace for namespace in plan.namespaces if namespace.role is Role.NODE]
    namespace = next((namespace for namespace in nodes if namespace.name == node), None)
    if namespace is None:
        raise LookupError(f"there is no node {node!r}; use {', '.join(namespace.name for namespace in nodes)}")
    by_kind = {"uplink": [UPLINK], "pods": _pod_devices(plan, node)}
    if namespace.vxlans:
        by_kind["overlay"] = [vxlan.device for vxlan in namespace.vxlans]
    devices = by_kind.get(device)
    if devices is None:
        raise LookupError(f"a node has no device {str(device)!r}; use {', '.join(by_kind)}")
    if not devices:
        raise LookupError(f"{node} has no pods, and so no pod device")
    if destination is None:
        destination = _destination_behind(plan, namespace, devices, family)
    leaves = next_device if (next_device := route_to(namespace, destination).device) in devices else devices[0]
    return masquerade_source(plan, node, leaves, destination)


def masquerade_source(plan: Plan, node: str, device: str, destination: IPAddress) -> IPAddress:
    """The source of packets for ``destination`` that ``node`` masquerades through one of its devices.

    Raises:
        LookupError: the node has no address of that family.
    """
    namespace = plan.namespace(node)
    return selected_source(plan, namespace, device, destination, _gateway(namespace, device, destination))


def masquerades(
    plan: Plan,
    resolved: ResolvedProbe,
    backends: Collection[IPAddress],
    node_ports: Collection[int],
    *,
    left_to_balancers: Collection[IPAddress | None] = (),
) -> tuple[MasqueradedAs, ...]:
    """The source that masquerading gives a probe's flows, for each node that may translate them and each backend.

    Args:
        plan: of the lab.
        resolved: the probe, or a stream.
        backends: the addresses that a node may translate them to.
        node_ports: of all Services. A node translates them only at its own addresses, and other frontends wherever a
            packet meets its rules.
        left_to_balancers: addresses that nodes do not translate, since their ipMode is Proxy.

    Raises:
        LookupError: the network has no way to a node or an endpoint, or a node has no address of that family.
    """
    nodes = {namespace.name: namespace for namespace in plan.namespaces if namespace.role is Role.NODE}
    home, found = resolved.sender.namespace, list[MasqueradedAs]()
    for node in _translators(plan, resolved, nodes, node_ports, left_to_balancers):
        own = {address.interface.ip for address in nodes[node].addresses}
        for backend in dict.fromkeys(backends):
            # Packets of other machines for the node's own programs go up the stack and pass no POSTROUTING.
            source = None
            if backend not in own:
                source = masquerade_source(plan, node, next_hop(plan, node, backend).out.device, backend)
            elif node == home:
                source = masquerade_source(plan, node, "lo", backend)
            found.append(MasqueradedAs(node=node, backend=backend, source=source))
    return tuple(found)


def _translators(
    plan: Plan,
    resolved: ResolvedProbe,
    nodes: Collection[str],
    node_ports: Collection[int],
    left_to_balancers: Collection[IPAddress | None],
) -> tuple[str, ...]:
    """The nodes that may translate a probe's flows: the owner of a node port's address, or the first nodes reached."""
    home, destination = resolved.sender.namespace, resolved.destination
    if resolved.port in node_ports:
        for node in nodes:
            if plan.namespace(node).has(destination):
                return (node,)
    if (dialler := plan.dialler(destination)) is not None:
        # The own node of a pod or a program translates the address, unless the Service leaves it to the balancer.
        own = [pod.node for pod in plan.pods if pod.namespace == home] + [name for name in nodes if name == home]
        return tuple(dict.fromkeys((*(own if destination not in left_to_balancers else ()), *dialler.nodes)))
    if home in nodes:
        return (home,)
    if (policy := resolved.policy_route) is not None:
        plan = plan.with_routes(policy.namespace, (Route(policy.destination, policy.device, policy.via),))
    reached, ahead = dict[str, None](), {home: None}
    while ahead:
        further = {hop.into.namespace: None for each in ahead for hop in next_hops(plan, each, destination)}
        reached |= ahead
        ahead = {name: None for name in further if name not in nodes and name not in reached}
        reached |= further
    return tuple(name for name in reached if name in nodes)


def own_source(plan: Plan, name: str, destination: IPAddress) -> IPAddress:
    """The source that the kernel gives to packets of a namespace's own programs for ``destination``.

    The source for one of its own addresses is that address; otherwise the route's preferred source, then the device's.

    Raises:
        UnreachableError: the namespace has no route there.
        LookupError: the namespace has no address of that family.
    """
    namespace = plan.namespace(name)
    if namespace.has(destination):
        return _local_source(namespace, destination)
    route = route_to(namespace, destination)
    gateway = next((hop.via for hop in route.hops), route.via)
    return route.source or selected_source(plan, namespace, route.device, destination, gateway)


def _local_source(namespace: PlannedNamespace, destination: IPAddress) -> IPAddress:
    """The source of packets to a namespace's own address: that address, but in IPv4 the first one of its network there.

    IPv4's route to a secondary address prefers the primary one as source (fib_add_ifaddr, net/ipv4/fib_frontend.c).
    """
    own = next(each for each in namespace.addresses if each.interface.ip == destination)
    network = (own.device, own.interface.network)
    alike = (each for each in namespace.addresses if (each.device, each.interface.network) == network)
    return destination if destination.version == 6 else next(alike).interface.ip


def _pod_devices(plan: Plan, node: str) -> list[str]:
    """The node's ends of its pods' links, or their bridge."""
    pods = {namespace.name for namespace in plan.namespaces if namespace.role is Role.POD}
    return [
        end.master or end.device
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace == node and other.namespace in pods
    ]


def _destination_behind(plan: Plan, namespace: PlannedNamespace, devices: Collection[str], family: Family) -> IPAddress:
    """The address of a pod to which the node routes through one of the devices, or else of its default gateway."""
    for pod in plan.pods:
        for address in pod.addresses:
            ours = Family.of(address) is family and not namespace.has(address)
            if ours and route_to(namespace, address).device in devices:
                return address
    for route in namespace.routes:
        if route.via is not None and Family.of(route.via) is family and not route.destination.prefixlen:
            return route.via
    raise LookupError(f"{namespace.name} has no {family} address")


def _gateway(namespace: PlannedNamespace, device: str, destination: IPAddress) -> IPAddress:
    """The next router on the way through that device, or the destination where there is none."""
    if namespace.has(destination):
        return destination
    route = route_to(namespace, destination)
    through = [hop.via for hop in route.hops if hop.device == device]
    return next(iter(through), route.via) or destination
