"""Small clusters, one for each shape of rules, in either family.

Golden files hold what kube-proxy wrote for them, and the kernel tests load what they render to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import (
    BridgeInterface,
    ClusterCIDR,
    InterfaceNamePrefix,
    NodeCIDR,
    ProxySettings,
)

HERE = "node-a"
ELSEWHERE = "node-b"

PREFIXES = {
    Family.IPV4: {
        "cluster": "10.96.0.",
        "pod": "10.42.0.",
        "node": "172.18.0.",
        "external": "198.51.100.",
        "vip": "203.0.113.",
        "loopback": "127.0.0.",
    },
    Family.IPV6: {
        "cluster": "fd00:96::",
        "pod": "fd00:42::",
        "node": "fd00:172::",
        "external": "2001:db8:51::",
        "vip": "2001:db8:113::",
        "loopback": "::",
    },
}
LENGTHS = {Family.IPV4: (16, 24), Family.IPV6: (32, 64)}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of one family by what they are for."""

    family: Family

    def of(self, kind: str, number: int) -> IPAddress:
        return ip_address(f"{PREFIXES[self.family][kind]}{number}")

    def wide(self, kind: str) -> IPNetwork:
        return ip_network(f"{self.of(kind, 0)}/{LENGTHS[self.family][0]}", strict=False)

    def narrow(self, kind: str) -> IPNetwork:
        return ip_network(f"{self.of(kind, 0)}/{LENGTHS[self.family][1]}", strict=False)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster seen from one node by one proxy."""

    cluster: ClusterView
    node: NodeFacts
    settings: ProxySettings


def echo(addresses: Addresses, **changes: object) -> Service:
    plain = Service(
        name="echo",
        cluster_ips=(addresses.of("cluster", 20),),
        ip_families=(addresses.family,),
        ports=(ServicePort(port=80, target_port=8080),),
    )
    return replace(plain, **changes)


def endpoint(addresses: Addresses, number: int, node: str = HERE, **changes: object) -> Endpoint:
    return replace(Endpoint(addresses=(addresses.of("pod", number),), node_name=node), **changes)


def slice_of(
    service: Service, addresses: Addresses, *endpoints: Endpoint, ports: tuple[EndpointPort, ...] = ()
) -> EndpointSlice:
    resolved = ports or tuple(
        EndpointPort(name=port.name, protocol=port.protocol, port=int(port.target_port)) for port in service.ports
    )
    return EndpointSlice(
        namespace=service.namespace,
        name=f"{service.name}-abcde",
        service=service.name,
        address_type=addresses.family,
        ports=resolved,
        endpoints=endpoints,
    )


def here_and_there(addresses: Addresses) -> tuple[Endpoint, ...]:
    """Two endpoints on this node, one on the other."""
    return (endpoint(addresses, 10), endpoint(addresses, 11), endpoint(addresses, 12, ELSEWHERE))


def there(addresses: Addresses) -> tuple[Endpoint, ...]:
    return (endpoint(addresses, 12, ELSEWHERE),)


def facts(addresses: Addresses, **changes: object) -> NodeFacts:
    plain = NodeFacts(name=HERE, addresses=(addresses.of("node", 2),), pod_cidrs=(addresses.narrow("pod"),))
    return replace(plain, **changes)


def settings(addresses: Addresses, **changes: object) -> ProxySettings:
    return replace(ProxySettings(detect_local=ClusterCIDR((addresses.wide("pod"),))), **changes)


def case(
    addresses: Addresses,
    *served: tuple[Service, tuple[Endpoint, ...]],
    node: NodeFacts | None = None,
    using: ProxySettings | None = None,
) -> Case:
    view = ClusterView(
        tuple(service for service, _ in served),
        tuple(slice_of(service, addresses, *endpoints) for service, endpoints in served if endpoints),
    )
    return Case(view, node or facts(addresses), using or settings(addresses))


def node_port(addresses: Addresses, **changes: object) -> Service:
    ports = (ServicePort(port=80, target_port=8080, node_port=30080),)
    return echo(addresses, type=ServiceType.NODE_PORT, ports=ports, **changes)


def load_balancer(addresses: Addresses, **changes: object) -> Service:
    ingress = (LoadBalancerIngress(ip=addresses.of("vip", 7)),)
    ports = (ServicePort(port=80, target_port=8080, node_port=30080),)
    plain = echo(addresses, type=ServiceType.LOAD_BALANCER, ports=ports, load_balancer_ingress=ingress)
    return replace(plain, **changes)


def external_ip(addresses: Addresses, **changes: object) -> Service:
    return echo(addresses, external_ips=(addresses.of("external", 9),), **changes)


LOCAL_OUTSIDE = {"external_traffic_policy": TrafficPolicy.LOCAL}
LOCAL_INSIDE = {"internal_traffic_policy": TrafficPolicy.LOCAL}


def _of_protocol(protocol: Protocol) -> Callable[[Addresses], Case]:
    ports = (ServicePort(name="p", protocol=protocol, port=53, target_port=5353),)
    return lambda a: case(a, (echo(a, ports=ports), here_and_there(a)))


def _two_ports(a: Addresses) -> Case:
    ports = (
        ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=5353),
        ServicePort(name="dns-tcp", protocol=Protocol.TCP, port=53, target_port=5354),
    )
    return case(a, (echo(a, ports=ports), here_and_there(a)))


def _restricted_node_ports(a: Addresses, *, loopback: bool = True) -> Case:
    own = (a.of("loopback", 1), a.of("node", 2), a.of("node", 3), a.of("vip", 1))
    chosen = (a.narrow("node"), *([ip_network(f"{a.of('loopback', 1)}")] if loopback else []))
    served = (node_port(a), here_and_there(a))
    return case(a, served, node=facts(a, interface_addresses=own), using=settings(a, node_port_addresses=chosen))


def _terminating(a: Addresses) -> Case:
    dying = {"ready": False, "terminating": True}
    endpoints = (
        endpoint(a, 10, ELSEWHERE, **dying),
        endpoint(a, 11, ELSEWHERE, **dying, serving=False),
        endpoint(a, 12, ELSEWHERE, ready=False, serving=False),
    )
    return case(a, (echo(a), endpoints))


def _zone_hints(a: Addresses) -> Case:
    hinted = (
        endpoint(a, 10, for_zones=("blue",)),
        endpoint(a, 11, ELSEWHERE, for_zones=("blue",)),
        endpoint(a, 12, ELSEWHERE, for_zones=("green",)),
    )
    return case(a, (echo(a), hinted), node=facts(a, zone="blue"))


def _node_hints(a: Addresses) -> Case:
    hinted = (
        endpoint(a, 10, for_zones=("blue",), for_nodes=(HERE,)),
        endpoint(a, 11, ELSEWHERE, for_zones=("blue",), for_nodes=(ELSEWHERE,)),
    )
    return case(a, (echo(a), hinted), node=facts(a, zone="blue"))


def _large_cluster(a: Addresses) -> Case:
    """One Service of two endpoints to look at, and another that does nothing but be large: none of it is ready."""
    crowd = [replace(endpoint(a, 10, ready=False), addresses=(a.of("pod", 0) + number,)) for number in range(100, 1101)]
    crowded = echo(a, name="crowd", cluster_ips=(a.of("cluster", 21),))
    return case(a, (crowded, tuple(crowd)), (echo(a), here_and_there(a)))


def _source_ranges(kind: str) -> Callable[[Addresses], Case]:
    return lambda a: case(
        a, (load_balancer(a, source_ranges=(a.narrow("external"), a.narrow(kind))), here_and_there(a))
    )


CASES: Mapping[str, Callable[[Addresses], Case]] = {
    "empty": case,
    "cluster-ip": lambda a: case(a, (echo(a), here_and_there(a))),
    "cluster-ip-one-endpoint": lambda a: case(a, (echo(a), there(a))),
    "cluster-ip-udp": _of_protocol(Protocol.UDP),
    "cluster-ip-sctp": _of_protocol(Protocol.SCTP),
    "cluster-ip-two-ports": _two_ports,
    "cluster-ip-no-endpoints": lambda a: case(a, (echo(a), ())),
    "cluster-ip-internal-local": lambda a: case(a, (echo(a, **LOCAL_INSIDE), here_and_there(a))),
    "cluster-ip-internal-local-none-here": lambda a: case(a, (echo(a, **LOCAL_INSIDE), there(a))),
    "cluster-ip-affinity": lambda a: case(a, (echo(a, affinity_timeout=10800), here_and_there(a))),
    "cluster-ip-terminating-only": _terminating,
    "cluster-ip-zone-hints": _zone_hints,
    "cluster-ip-node-hints": _node_hints,
    "masquerade-all": lambda a: case(a, (echo(a), here_and_there(a)), using=settings(a, masquerade_all=True)),
    "detect-none": lambda a: case(
        a, (node_port(a, **LOCAL_OUTSIDE), here_and_there(a)), using=settings(a, detect_local=ClusterCIDR())
    ),
    "detect-node-cidr": lambda a: case(
        a, (node_port(a, **LOCAL_OUTSIDE), here_and_there(a)), using=settings(a, detect_local=NodeCIDR())
    ),
    "detect-bridge": lambda a: case(
        a, (node_port(a, **LOCAL_OUTSIDE), here_and_there(a)), using=settings(a, detect_local=BridgeInterface("cni0"))
    ),
    "detect-prefix": lambda a: case(
        a,
        (node_port(a, **LOCAL_OUTSIDE), here_and_there(a)),
        using=settings(a, detect_local=InterfaceNamePrefix("veth")),
    ),
    "node-port": lambda a: case(a, (node_port(a), here_and_there(a))),
    "node-port-no-endpoints": lambda a: case(a, (node_port(a), ())),
    "node-port-local": lambda a: case(a, (node_port(a, **LOCAL_OUTSIDE), here_and_there(a))),
    "node-port-local-none-here": lambda a: case(a, (node_port(a, **LOCAL_OUTSIDE), there(a))),
    "node-port-local-affinity": lambda a: case(
        a, (node_port(a, **LOCAL_OUTSIDE, affinity_timeout=60), here_and_there(a))
    ),
    "node-port-internal-local": lambda a: case(a, (node_port(a, **LOCAL_INSIDE), here_and_there(a))),
    "node-port-both-local": lambda a: case(a, (node_port(a, **LOCAL_OUTSIDE, **LOCAL_INSIDE), here_and_there(a))),
    "node-port-addresses": _restricted_node_ports,
    "node-port-addresses-but-loopback": lambda a: _restricted_node_ports(a, loopback=False),
    "node-port-not-on-localhost": lambda a: case(
        a, (node_port(a), here_and_there(a)), using=settings(a, localhost_node_ports=False)
    ),
    "external-ip": lambda a: case(a, (external_ip(a), here_and_there(a))),
    "external-ip-no-endpoints": lambda a: case(a, (external_ip(a), ())),
    "external-ip-local-none-here": lambda a: case(a, (external_ip(a, **LOCAL_OUTSIDE), there(a))),
    "load-balancer": lambda a: case(a, (load_balancer(a), here_and_there(a))),
    "load-balancer-no-endpoints": lambda a: case(a, (load_balancer(a, source_ranges=(a.narrow("external"),)), ())),
    "load-balancer-local": lambda a: case(
        a, (load_balancer(a, **LOCAL_OUTSIDE, health_check_node_port=30999), here_and_there(a))
    ),
    "load-balancer-local-none-here": lambda a: case(
        a, (load_balancer(a, **LOCAL_OUTSIDE, health_check_node_port=30999), there(a))
    ),
    "load-balancer-source-ranges": _source_ranges("vip"),
    "load-balancer-source-ranges-with-node": _source_ranges("node"),
    "load-balancer-ip-mode-proxy": lambda a: case(
        a,
        (
            load_balancer(a, load_balancer_ingress=(LoadBalancerIngress(ip=a.of("vip", 7), ip_mode="Proxy"),)),
            here_and_there(a),
        ),
    ),
    "large-cluster": _large_cluster,
    "packet-counters": lambda a: case(a, (node_port(a), here_and_there(a)), using=settings(a, packet_counters=True)),
    "settings": lambda a: case(
        a,
        (echo(a), there(a)),
        using=settings(a, masquerade_bit=15, random_fully=False, conntrack_tcp_be_liberal=True),
    ),
}
