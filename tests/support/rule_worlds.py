"""Strategies for every cluster that the API server accepts, and every proxy configuration, for property tests."""

from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

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
from proxylab.engines.embedded.settings import BridgeInterface, ClusterCIDR, NodeCIDR, ProxySettings

NODES = ("node-a", "node-b", "")
ZONES = ("blue", "green")
BASES = {
    Family.IPV4: {"cluster": "10.96.0.0", "pod": "10.42.0.0", "other": "198.51.100.0"},
    Family.IPV6: {"cluster": "fd00:96::", "pod": "fd00:42::", "other": "2001:db8::"},
}


def address(family: Family, kind: str, number: int) -> IPAddress:
    return ip_address(BASES[family][kind]) + number


def network(family: Family, kind: str, bits: int) -> IPNetwork:
    """The network of that kind with so many bits for hosts."""
    return ip_network(f"{BASES[family][kind]}/{(32 if family is Family.IPV4 else 128) - bits}")


policies = st.sampled_from(TrafficPolicy)


@st.composite
def endpoints(draw: st.DrawFn, family: Family) -> Endpoint:
    return Endpoint(
        addresses=(address(family, "pod", draw(st.integers(1, 40))),),
        ready=draw(st.booleans()),
        serving=draw(st.booleans()),
        terminating=draw(st.booleans()),
        node_name=draw(st.sampled_from(NODES)),
        for_zones=tuple(draw(st.sets(st.sampled_from(ZONES)))),
        for_nodes=tuple(draw(st.sets(st.sampled_from(NODES[:2])))),
    )


@st.composite
def served(draw: st.DrawFn, family: Family, number: int) -> tuple[Service, list[EndpointSlice]]:
    """A Service and its slices, of any shape that the API server lets pass."""
    kind = draw(st.sampled_from([ServiceType.CLUSTER_IP, ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER]))
    balanced = kind is ServiceType.LOAD_BALANCER
    protocols = draw(st.lists(st.sampled_from(Protocol), min_size=1, max_size=2, unique=True))
    ports = tuple(
        ServicePort(
            name=protocol.lower() if len(protocols) > 1 else "",
            protocol=protocol,
            port=80,
            target_port=8080,
            node_port=0 if kind is ServiceType.CLUSTER_IP else 30000 + number,
        )
        for protocol in protocols
    )
    service = Service(
        namespace=draw(st.sampled_from(["default", "other"])),
        name=f"service-{number}",
        type=kind,
        ports=ports,
        cluster_ips=(address(family, "cluster", number + 1),),
        ip_families=(family,),
        external_ips=(address(family, "other", number + 1),) if draw(st.booleans()) else (),
        load_balancer_ingress=(LoadBalancerIngress(ip=address(family, "other", 100 + number)),) if balanced else (),
        source_ranges=(network(family, "pod", 7),) if balanced and draw(st.booleans()) else (),
        internal_traffic_policy=draw(policies),
        external_traffic_policy=draw(policies),
        affinity_timeout=draw(st.sampled_from([None, 10800])),
    )
    slices = [
        EndpointSlice(
            namespace=service.namespace,
            name=f"{service.name}-{index}",
            service=service.name,
            address_type=family,
            ports=tuple(EndpointPort(name=port.name, protocol=port.protocol, port=8080) for port in ports),
            endpoints=tuple(members),
        )
        for index, members in enumerate(draw(st.lists(st.lists(endpoints(family), max_size=6), max_size=2)))
    ]
    return service, slices


@st.composite
def clusters(draw: st.DrawFn, family: Family) -> ClusterView:
    drawn = [draw(served(family, number)) for number in range(draw(st.integers(0, 4)))]
    return ClusterView(tuple(service for service, _ in drawn), tuple(item for _, slices in drawn for item in slices))


@st.composite
def proxies(draw: st.DrawFn) -> tuple[Family, ProxySettings, NodeFacts]:
    family = draw(st.sampled_from(Family))
    detectors = [ClusterCIDR((network(family, "pod", 8),)), ClusterCIDR(), NodeCIDR(), BridgeInterface("cni0")]
    chosen = ProxySettings(
        masquerade_all=draw(st.booleans()),
        masquerade_bit=draw(st.integers(0, 31)),
        detect_local=draw(st.sampled_from(detectors)),
        node_port_addresses=draw(st.sampled_from([(), (network(family, "pod", 7),)])),
        localhost_node_ports=draw(st.booleans()),
        conntrack_tcp_be_liberal=draw(st.booleans()),
    )
    node = NodeFacts(
        name="node-a",
        zone=draw(st.sampled_from(["", *ZONES])),
        addresses=(address(family, "pod", 1),),
        pod_cidrs=(network(family, "pod", 7),),
        interface_addresses=(address(family, "pod", 1), address(family, "other", 1)),
    )
    return family, chosen, node


worlds = proxies().flatmap(lambda proxy: st.tuples(st.just(proxy), clusters(proxy[0])))
World = tuple[tuple[Family, ProxySettings, NodeFacts], ClusterView]


@st.composite
def twice(draw: st.DrawFn) -> tuple[World, World]:
    """A world, and the same with its objects in another order."""
    proxy, cluster = world = draw(worlds)
    services, slices = draw(st.permutations(cluster.services)), draw(st.permutations(cluster.slices))
    return world, (proxy, ClusterView(tuple(services), tuple(slices)))


def edited(cluster: ClusterView, other: ClusterView, data: st.DataObject) -> ClusterView:
    """Some objects of the one, some of the other; where both have one of a name, either."""
    services = {service.key: service for service in cluster.services}
    slices = {item.key: item for item in cluster.slices}
    for objects, theirs in ((services, other.services), (slices, other.slices)):
        for thing in theirs:
            if data.draw(st.booleans()):
                objects[thing.key] = thing
        for key in list(objects):
            if data.draw(st.integers(0, 3)) == 0:
                del objects[key]
    return ClusterView(tuple(services.values()), tuple(slices.values()))
