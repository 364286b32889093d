"""A plan for traffic: one node, a client pod and two listening pods; and probes for it."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

from msgspec.structs import replace

from proxylab.addresses import IPAddress, IPNetwork, Protocol, Transport
from proxylab.plan.model import Address, LinkEnd, Listener, Neighbour, Plan, PlannedNamespace, Role, Route, Sysctl, Veth
from proxylab.plan.resolved import Receiver, ResolvedProbe, Sender, Sentinel
from proxylab.scenario.words import Manner

GATEWAY = IPv4Address("10.244.0.1")
NODE = IPv4Address("172.18.0.2")
VIP = IPv4Address("10.96.0.10")
PODS: Mapping[str, tuple[IPv4Address, int, int]] = {
    "client": (IPv4Address("10.244.0.10"), 20, 21),
    "echo-1": (IPv4Address("10.244.0.11"), 22, 23),
    "echo-2": (IPv4Address("10.244.0.12"), 24, 25),
}
LISTENERS = (Protocol.TCP, Protocol.UDP)


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def traffic_plan() -> Plan:
    node = PlannedNamespace(
        name="node-a",
        role=Role.NODE,
        sysctls=(
            Sysctl("net.ipv4.ip_forward", "1"),
            Sysctl("net.ipv4.conf.all.rp_filter", "0"),
            Sysctl("net.ipv4.conf.default.rp_filter", "0"),
            Sysctl("net.ipv4.conf.all.send_redirects", "0"),
            Sysctl("net.ipv4.conf.default.send_redirects", "0"),
            Sysctl("net.ipv4.icmp_ratemask", "0"),
        ),
        addresses=(
            Address("lo", IPv4Interface(f"{NODE}/32")),
            *(Address(pod, IPv4Interface(f"{GATEWAY}/32")) for pod in PODS),
        ),
        routes=tuple(Route(IPv4Network(address), pod) for pod, (address, _, _) in PODS.items()),
        neighbours=tuple(Neighbour(pod, address, mac(inner)) for pod, (address, _, inner) in PODS.items()),
    )
    pods = tuple(
        PlannedNamespace(
            name=pod,
            role=Role.POD,
            sysctls=(Sysctl("net.ipv4.icmp_ratemask", "0"),),
            addresses=(Address("eth0", IPv4Interface(f"{address}/32")),),
            routes=(Route(IPv4Network(GATEWAY), "eth0"), Route(IPv4Network("0.0.0.0/0"), "eth0", GATEWAY)),
            neighbours=(Neighbour("eth0", GATEWAY, mac(outer)),),
            listeners=tuple(Listener(pod, protocol, 8080) for protocol in LISTENERS if pod != "client"),
        )
        for pod, (address, outer, _) in PODS.items()
    )
    links = tuple(
        Veth(LinkEnd("node-a", pod, outer, mac(outer)), LinkEnd(pod, "eth0", inner, mac(inner)))
        for pod, (_, outer, inner) in PODS.items()
    )
    return Plan(namespaces=(node, *pods), links=links)


def sixth(address: IPAddress) -> IPv6Address:
    """The IPv6 counterpart of an address of this plan."""
    return IPv6Address(int(IPv6Address("fd00::")) + int(address))


def over_ipv6(plan: Plan) -> Plan:
    """The same plan with IPv6 alone."""

    def network(old: IPNetwork) -> IPv6Network:
        whole = not old.prefixlen
        return IPv6Network("::/0") if whole else IPv6Network((sixth(old.network_address), old.prefixlen + 96))

    def sysctls(namespace: PlannedNamespace) -> tuple[Sysctl, ...]:
        values = {"disable_ipv6": "0", "accept_dad": "0", "forwarding": str(int(namespace.role is Role.NODE))}
        ours = [
            Sysctl(f"net.ipv6.conf.{of}.{key}", value) for of in ("all", "default") for key, value in values.items()
        ]
        return (*ours, Sysctl("net.ipv6.conf.default.addr_gen_mode", "1"), Sysctl("net.ipv6.icmp.ratemask", ""))

    return replace(
        plan,
        namespaces=tuple(
            replace(
                each,
                sysctls=sysctls(each),
                addresses=tuple(
                    Address(one.device, IPv6Interface((sixth(one.interface.ip), 128))) for one in each.addresses
                ),
                routes=tuple(
                    Route(network(one.destination), one.device, sixth(one.via) if one.via else None)
                    for one in each.routes
                ),
                neighbours=tuple(Neighbour(one.device, sixth(one.address), one.mac) for one in each.neighbours),
            )
            for each in plan.namespaces
        ),
    )


def errand_over_ipv6(resolved: ResolvedProbe) -> ResolvedProbe:
    """The same probe there."""
    return replace(
        resolved,
        sender=replace(resolved.sender, address=sixth(resolved.sender.address)),
        destination=sixth(resolved.destination),
        receivers=tuple(replace(each, address=sixth(each.address)) for each in resolved.receivers),
        sentinels=tuple(replace(each, address=sixth(each.address)) for each in resolved.sentinels),
    )


def resolved(
    protocol: Transport = Transport.TCP, manner: Manner = Manner.PACKET, sender: str = "client", **changes: Any
) -> ResolvedProbe:
    """A probe from a pod to port 80 of the virtual address, with ``changes``."""
    address, outer, inner = PODS[sender]
    whole = ResolvedProbe(
        number=0,
        name="a probe",
        sender=Sender(
            name=sender,
            namespace=sender,
            device="eth0",
            address=address,
            mac=mac(inner),
            next_hop_mac=mac(outer),
        ),
        destination=VIP,
        port=80,
        protocol=protocol,
        manner=manner,
        flows=1,
        payload=0,
        receivers=tuple(Receiver(name=pod, namespace=pod, device="eth0", address=PODS[pod][0]) for pod in PODS),
        sentinels=(
            Sentinel(name="node-a", address=NODE),
            *(Sentinel(name=pod, address=PODS[pod][0]) for pod in PODS if pod != sender),
        ),
        nodes=("node-a",),
    )
    return replace(whole, **changes)


def nat(*rules: str) -> str:
    return "\n".join(["*nat", *rules, "COMMIT", ""])


def spread(protocol: Transport, destination: IPv4Address = VIP) -> str:
    """A DNAT to the two listeners, half and half."""
    head = f"-A PREROUTING -d {destination}/32 -p {protocol.value.lower()} --dport 80"
    return nat(
        f"{head} -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.0.11:8080",
        f"{head} -j DNAT --to-destination 10.244.0.12:8080",
    )
