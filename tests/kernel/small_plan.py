"""A plan written by hand: a node with two pods, and a second node, on one segment."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from proxylab.plan.model import (
    Address,
    Bridge,
    LinkEnd,
    Neighbour,
    Plan,
    PlannedNamespace,
    Role,
    Route,
    Sysctl,
    Veth,
)


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def small_plan() -> Plan:
    gateway = IPv4Address("10.244.0.1")
    pods = {"pod-1": (IPv4Address("10.244.0.10"), 20, 21), "pod-2": (IPv4Address("10.244.0.11"), 22, 23)}
    forwarding = (Sysctl("net.ipv4.ip_forward", "1"), Sysctl("net.ipv4.conf.default.rp_filter", "2"))
    nodes = (
        PlannedNamespace(
            name="node-a",
            role=Role.NODE,
            sysctls=forwarding,
            addresses=(
                Address("eth0", IPv4Interface("172.18.0.2/16")),
                *(Address(pod, IPv4Interface(f"{gateway}/32")) for pod in pods),
            ),
            routes=tuple(Route(IPv4Network(address), pod) for pod, (address, _, _) in pods.items()),
            neighbours=tuple(Neighbour(pod, address, mac(inner)) for pod, (address, _, inner) in pods.items()),
        ),
        PlannedNamespace(
            name="node-b",
            role=Role.NODE,
            sysctls=forwarding,
            addresses=(Address("eth0", IPv4Interface("172.18.0.3/16")),),
            routes=(Route(IPv4Network("10.244.0.0/24"), "eth0", IPv4Address("172.18.0.2")),),
        ),
    )
    inside = tuple(
        PlannedNamespace(
            name=pod,
            role=Role.POD,
            sysctls=(Sysctl("net.ipv4.ip_forward", "0"),),
            addresses=(Address("eth0", IPv4Interface(f"{address}/32")),),
            routes=(
                Route(IPv4Network(gateway), "eth0"),
                Route(IPv4Network("0.0.0.0/0"), "eth0", gateway),
            ),
            neighbours=(Neighbour("eth0", gateway, mac(outer)),),
        )
        for pod, (address, outer, _) in pods.items()
    )
    links = (
        Veth(LinkEnd("fabric", "node-a", 11, mac(11), "nodes"), LinkEnd("node-a", "eth0", 12, mac(12))),
        Veth(LinkEnd("fabric", "node-b", 13, mac(13), "nodes"), LinkEnd("node-b", "eth0", 14, mac(14))),
        *(
            Veth(LinkEnd("node-a", pod, outer, mac(outer)), LinkEnd(pod, "eth0", inner, mac(inner)))
            for pod, (_, outer, inner) in pods.items()
        ),
    )
    fabric = PlannedNamespace(name="fabric", role=Role.SEGMENT, bridges=(Bridge("nodes", 10, mac(10)),))
    return Plan(namespaces=(fabric, *nodes, *inside), links=links)
