"""Scenarios for every kind of network, each with a name."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from msgspec.structs import replace
from scenario_cases import DUAL, HTTP, IPV6, at, host, node, pods, scenario, two_nodes

from proxylab.scenario.model import Scenario
from proxylab.scenario.network import RoutedAddress, Segment
from proxylab.scenario.nodes import Daemon, NodeAddress, NodeRoute, Uplink
from proxylab.scenario.pods import LoadBalancer

STORAGE = Segment(
    name="storage", cidrs=(ip_network("192.168.7.0/24"), ip_network("fd00:192:168:7::/64")), position=at(1)
)
BALANCED = ip_network("198.51.100.7/32")


def crowded(addresses: int = 300) -> Scenario:
    """Host-network pods, replicas in one namespace, a second segment, policy routes, many addresses, routed IPs."""
    balanced = NodeAddress(device="lo", interface=ip_interface(BALANCED))
    second = NodeAddress(device="eth0", interface=ip_interface("172.18.9.9/16"))
    routes = (
        NodeRoute(ip_network("198.18.0.0/15"), "eth0", ip_address("172.18.0.1")),
        NodeRoute(ip_network("0.0.0.0/0"), "eth1", ip_address("192.168.7.1"), source=ip_network("192.168.7.11/32")),
        NodeRoute(
            ip_network("2001:db8:203:113::/64"),
            "eth1",
            ip_address("fd00:192:168:7::1"),
            source=ip_network("fd00:192:168:7::b/128"),
        ),
    )
    return scenario(
        [
            node("node-a", uplinks=(Uplink("eth1", "storage"),), addresses=(balanced, second), routes=routes),
            node(
                "node-b",
                addresses=(balanced,),
                daemons=(Daemon(name="kubelet", port=10250),),
                sysctls={"net.ipv4.conf.eth0.rp_filter": "2"},
            ),
        ],
        [
            pods("echo", "node-a", "node-b", replicas=6, shared_netns=True, ports=(HTTP,)),
            pods("agent", "node-a", "node-b", replicas=2, host_network=True, ports=(HTTP,)),
            pods("sender", "node-a", sysctls={"net.ipv4.tcp_syncookies": "0"}),
        ],
        [
            host("client", addresses=addresses),
            host("neighbour", segment="nodes", sysctls={"net.ipv4.conf.eth0.arp_ignore": "1"}),
            host("disk", segment="storage"),
        ],
        network={
            **DUAL,
            "outside_cidrs": (ip_network("198.19.0.0/22"), ip_network("2001:db8:203:113::/64")),
            "segments": (STORAGE,),
            "router_sysctls": {"net.ipv4.icmp_ratelimit": "2000"},
            "routed": (RoutedAddress(network=BALANCED, nodes=("node-a", "node-b"), position=at(1)),),
        },
    )


def fixed(**network: Any) -> Scenario:
    """Pods with addresses from the file: in their node's range, in another node's, or in no node's."""
    own = {"in-order": "10.244.0.10", "elsewhere": "10.244.1.77", "nowhere": "10.244.200.9"}
    own6 = {"in-order": "fd00:10:244::a", "elsewhere": "fd00:10:244:1::77", "nowhere": "fd00:10:244:c8::9"}
    bridged = network.get("pod_network") == "bridge"
    return scenario(
        [
            node("node-a"),
            node("node-b", addresses=(NodeAddress(device="eth0", interface=ip_interface("172.18.0.10/16")),)),
        ],
        [
            pods("echo", "node-a", "node-b", replicas=3, ports=(HTTP,)),
            *(
                pods(name, "node-a", addresses=(ip_address(own[name]), ip_address(own6[name])))
                for name in own
                if name == "in-order" or not bridged
            ),
        ],
        [host("client"), host("neighbour", segment="nodes")],
        network={**DUAL, **network},
    )


def firsts(**network: Any) -> Scenario:
    """Pods, nodes and hosts have the addresses that gateways and routers have otherwise."""
    bridged = network.get("pod_network") == "bridge"
    own = {"own-first": ("10.244.0.1", "fd00:10:244::1"), "other-first": ("10.244.1.1", "fd00:10:244:1::1")}
    if not bridged:
        own["zero"] = ("10.244.0.0", "fd00:10:244:0::9")
        own["last"] = ("10.244.1.255", "fd00:10:244:1::9")
    return scenario(
        [node("node-a", internal_ips=(ip_address("172.18.0.1"),)), node("node-b")],
        [
            pods("echo", "node-a", "node-b", replicas=3, ports=(HTTP,)),
            *(
                pods(
                    name,
                    "node-b" if bridged and name == "other-first" else "node-a",
                    addresses=tuple(map(ip_address, both)),
                )
                for name, both in own.items()
            ),
        ],
        [
            host("client", addresses=(ip_address("203.0.113.1"), ip_address("203.0.113.99"))),
            host("neighbour", segment="nodes", addresses=(ip_address("172.18.77.7"), ip_address("fd00:172:18::1"))),
            host("disk", segment="storage", addresses=(ip_address("192.168.7.1"), ip_address("fd00:192:168:7::2"))),
        ],
        network={
            **DUAL,
            "segments": (STORAGE,),
            "routers": {
                "nodes": (ip_address("172.18.255.254"), ip_address("fd00:172:18::fe")),
                "outside": (ip_address("203.0.113.254"),),
                "storage": (ip_address("192.168.7.254"),),
            },
            **network,
        },
    )


def balanced() -> Scenario:
    """A balancer that follows health and one that does not, both families, both before two nodes of three."""
    taken_in = tuple(
        NodeAddress(device="lo", interface=ip_interface(each)) for each in ("192.0.2.33", "2001:db8:193::1")
    )
    edges = {
        "edge": ("192.0.2.0/28", "2001:db8:192::/64", True),
        "blind": ("192.0.2.32/28", "2001:db8:193::/64", False),
    }
    return replace(
        scenario(
            [*(node(name, addresses=taken_in) for name in ("node-a", "node-b")), node("node-c")],
            # A flow label of each socket's own would share its flows even among ways that are chosen by addresses.
            hosts=[host("client", sysctls={"net.ipv6.auto_flowlabels": "0"})],
            network=DUAL,
        ),
        load_balancers=tuple(
            LoadBalancer(
                name=name,
                pool=(ip_network(four), ip_network(six)),
                nodes=("node-a", "node-b"),
                health_checked=checked,
                position=at(9),
            )
            for name, (four, six, checked) in edges.items()
        ),
    )


def network(**network: Any) -> Scenario:
    return two_nodes(network=network)


BASIC: Mapping[str, Scenario] = {
    "ptp": network(),
    "ptp IPv6": network(**IPV6),
    "ptp dual": network(**DUAL),
    "unnumbered dual": network(**DUAL, pod_network="ptp-unnumbered"),
    "masqueraded": network(**DUAL, outbound_masquerade=True),
    "bridge dual": network(**DUAL, pod_network="bridge"),
    "unnumbered IPv6": network(**IPV6, pod_network="ptp-unnumbered"),
    "bridge IPv6": network(**IPV6, pod_network="bridge"),
    "promiscuous bridge": network(**DUAL, pod_network="bridge", hairpin="promiscuous-bridge"),
    "bridge without hairpin": network(**DUAL, pod_network="bridge", hairpin="none"),
    "crowded": crowded(),
    "balanced": balanced(),
    "fixed addresses": fixed(),
    "fixed addresses on a bridge": fixed(pod_network="bridge"),
    "first addresses": firsts(),
    "first addresses unnumbered": firsts(pod_network="ptp-unnumbered"),
    "first addresses on a bridge": firsts(pod_network="bridge"),
}
TUNNELLED: Mapping[str, Scenario] = {
    "vxlan ptp dual": network(**DUAL, inter_node="vxlan"),
    "vxlan bridge": network(**DUAL, pod_network="bridge", inter_node="vxlan"),
    "vxlan IPv6": network(**IPV6, inter_node="vxlan"),
    "vxlan fixed addresses": fixed(inter_node="vxlan", pod_network="ptp-unnumbered"),
}
