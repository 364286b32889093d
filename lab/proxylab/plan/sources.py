"""The source address of masqueraded packets, and of a namespace's own packets.

In IPv4, MASQUERADE uses the first address of global scope on the outgoing device (nf_nat_masquerade_ipv4 calls
inet_select_addr, net/ipv4/devinet.c). If that device has none, it uses the first one of the namespace, in the order of
its devices, ``lo`` first. In IPv6 the kernel applies RFC 6724 (ipv6_dev_get_saddr, net/ipv6/addrconf.c): the device's
own address too, but if it has none, the address of the namespace with the longest common prefix with the destination
(rule 8), and among equals the first. So a packet that leaves a node through its uplink has the node's address; a packet
to a pod of the same node has the gateway's, or with unnumbered pods the node's; a packet through the overlay has the
VXLAN device's.
"""

from collections.abc import Collection

from proxylab.addresses import Family, IPAddress
from proxylab.plan.forwarding import next_hop, next_hops, route_to
from proxylab.plan.model import Device, Namespace, Plan, Role, Route
from proxylab.plan.resolved import MasqueradedAs, ResolvedProbe
from proxylab.scenario.network import UPLINK

__all__ = ["masquerade_source", "masquerades", "own_source", "snat_source"]


def snat_source(plan: Plan, node: str, device: str, family: Family = Family.IPV4) -> IPAddress:
    """The source of packets that ``node`` masquerades through its ``uplink``, to its ``pods``, or ``overlay``.

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
    return _selected(plan, namespace, devices[0], family, _pod_behind(plan, devices[0], node, family))


def masquerade_source(plan: Plan, node: str, device: str, destination: IPAddress) -> IPAddress:
    """The source of packets for ``destination`` that ``node`` masquerades through one of its devices.

    Raises:
        LookupError: the node has no address of that family.
    """
    return _selected(plan, plan.namespace(node), device, Family.of(destination), destination)


def masquerades(
    plan: Plan, resolved: ResolvedProbe, backends: Collection[IPAddress], node_ports: Collection[int]
) -> tuple[MasqueradedAs, ...]:
    """The source that masquerading gives a probe's flows, for each node that may translate them and each backend.

    Args:
        plan: of the lab.
        resolved: the probe, or a stream.
        backends: the addresses that a node may translate them to.
        node_ports: of all Services. A node translates them only at its own addresses, and other frontends wherever a
            packet meets its rules.

    Raises:
        LookupError: the network has no way to a node or an endpoint, or a node has no address of that family.
    """
    nodes = {namespace.name: namespace for namespace in plan.namespaces if namespace.role is Role.NODE}
    home, found = resolved.sender.namespace, list[MasqueradedAs]()
    for node in _translators(plan, resolved, nodes, node_ports):
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
    plan: Plan, resolved: ResolvedProbe, nodes: Collection[str], node_ports: Collection[int]
) -> tuple[str, ...]:
    """The nodes that may translate a probe's flows: the owner of a node port's address, or the first nodes reached."""
    home, destination = resolved.sender.namespace, resolved.destination
    if resolved.port in node_ports:
        for node in nodes:
            if plan.namespace(node).has(destination):
                return (node,)
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
        return destination
    route = route_to(namespace, destination)
    return route.source or _selected(plan, namespace, route.device, Family.of(destination), destination)


def _pod_devices(plan: Plan, node: str) -> list[str]:
    """The node's ends of its pods' links, or their bridge."""
    pods = {namespace.name for namespace in plan.namespaces if namespace.role is Role.POD}
    return [
        end.master or end.device
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace == node and other.namespace in pods
    ]


def _pod_behind(plan: Plan, device: str, node: str, family: Family) -> IPAddress | None:
    """The address of a pod behind the device; all pods of a node are of one network."""
    if device not in _pod_devices(plan, node):
        return None
    addresses = (
        address.interface.ip
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace == node and device in (end.device, end.master)
        for address in plan.namespace(other.namespace).addresses
    )
    return next((each for each in addresses if Family.of(each) is family and not each.is_link_local), None)


def _selected(
    plan: Plan, namespace: Namespace, device: str, family: Family, destination: IPAddress | None
) -> IPAddress:
    """The first address on the device, else of all devices in the order of their indexes."""
    tops: list[Device] = [*namespace.bridges, *namespace.vxlans]
    order = {"lo": 0} | {top.device: top.index for top in tops}
    order |= {end.device: end.index for link in plan.links for end in link.ends if end.namespace == namespace.name}
    fitting = [
        address
        for address in namespace.addresses
        if Family.of(address.interface) is family and not address.interface.ip.is_link_local
    ]
    if not fitting:
        raise LookupError(f"{namespace.name} has no {family} address")
    own = [address for address in fitting if address.device == device]
    if own:
        return own[0].interface.ip
    borrowed = [address.interface.ip for address in sorted(fitting, key=lambda address: order[address.device])]
    if destination is None or family is Family.IPV4:
        return borrowed[0]
    # max() returns the first of equals. The shorter the XOR, the longer the common prefix.
    return max(borrowed, key=lambda address: -(int(address) ^ int(destination)).bit_length())
