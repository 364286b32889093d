"""What a node's kernel must hold in mode ipvs besides rules: virtual servers, sets, and the addresses of kube-ipvs0.

Owns ``Tables`` and ``plan_tables``, which makes them from the service ports. It follows pkg/proxy/ipvs/proxier.go:

* Every frontend is a virtual server. A node port has one on each address of the node, but none on loopback addresses.
* IPVS takes a packet in the hook for packets to the node itself, so the node must own each frontend's address: on a
  dummy device that is down.
* Under policy Local, a node without an endpoint of its own leads traffic to all endpoints, where other modes drop it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.engines.embedded.categories import EndpointCategories, categorize_endpoints
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.evidence.ipvs import IpSet, IpvsDestination, Member, ServerKey, VirtualServer

DUMMY: Final = "kube-ipvs0"

_HASH_SOURCE: Final = 0x10
"""kube-proxy's ``FlagSourceHash``, which scheduler mh reads as ``mh-port``: it hashes the source port, too."""

_NODE_PORTS: Final = {
    Protocol.TCP: (NodeSet.NODE_PORT_TCP, NodeSet.NODE_PORT_LOCAL_TCP),
    Protocol.UDP: (NodeSet.NODE_PORT_UDP, NodeSet.NODE_PORT_LOCAL_UDP),
    Protocol.SCTP: (NodeSet.NODE_PORT_SCTP, NodeSet.NODE_PORT_LOCAL_SCTP),
}


class Tables(Struct, frozen=True):
    """The tables of one family on one node.

    Attributes:
        servers: the virtual servers by what identifies them.
        members: the members of each set; a set without members has no entry.
        bound: the addresses of the dummy device.
        closed: load-balancer IPs that their source ranges close to the node itself.
    """

    servers: Mapping[ServerKey, VirtualServer]
    members: Mapping[NodeSet, frozenset[Member]]
    bound: frozenset[IPAddress]
    closed: tuple[ServerKey, ...] = ()

    def sets(self, family: Family) -> list[IpSet]:
        """Every set of a family, empty ones too."""
        return [each.of(family, self.members.get(each, frozenset())) for each in NodeSet]


def plan_tables(ports: Iterable[ServicePortInfo], node: NodeFacts, settings: ProxySettings, family: Family) -> Tables:
    """The tables for these service ports. Of two ports with the same frontend the first one has it."""
    planning = _Planning(node, settings, family)
    for port in ports:
        planning.add(port)
    return planning.tables()


class _Planning:
    """Collects the tables, port by port."""

    def __init__(self, node: NodeFacts, settings: ProxySettings, family: Family) -> None:
        self._node, self._settings, self._family = node, settings, family
        own = [each for each in node.interface_addresses if Family.of(each) is family and _counts(each)]
        chosen = node_port_addresses(family, settings, node)
        self._own = frozenset(own)
        self._node_ports = sorted(self._own if chosen is None else set(chosen) & self._own, key=int)
        self._servers: dict[ServerKey, VirtualServer] = {}
        self._members: defaultdict[NodeSet, set[Member]] = defaultdict(set)
        self._bound: set[IPAddress] = set()
        self._closed: list[ServerKey] = []

    def tables(self) -> Tables:
        """What has been collected."""
        self._members[NodeSet.IPVS_IPS] = {Member(address=each) for each in self._bound}
        members = {each: frozenset(found) for each, found in self._members.items() if found}
        return Tables(self._servers, members, frozenset(self._bound), tuple(self._closed))

    def add(self, port: ServicePortInfo) -> None:
        """Add all frontends of a service port."""
        endpoints = categorize_endpoints(port, self._node)
        self._members[NodeSet.LOOP_BACK].update(_hairpins(port))
        self._members[NodeSet.CLUSTER_IP].add(_frontend(port, port.cluster_ip))
        self._serve(port, port.cluster_ip, port.port, _usable(endpoints, local=port.internal_policy_local))
        self._bound.add(port.cluster_ip)
        outside = _usable(endpoints, local=port.external_policy_local)
        for address in port.external_ips:
            external = NodeSet.EXTERNAL_IP_LOCAL if port.external_policy_local else NodeSet.EXTERNAL_IP
            self._members[external].add(_frontend(port, address))
            self._serve_bound(port, address, outside)
        for address in port.load_balancer_vips:
            self._add_load_balancer(port, address)
            self._serve_bound(port, address, outside)
        if port.node_port and self._node_ports:
            self._add_node_port(port, outside)
        if port.health_check_node_port:
            self._members[NodeSet.HEALTH_CHECK_NODE_PORT].add(Member(port=port.health_check_node_port))

    def _add_load_balancer(self, port: ServicePortInfo, address: IPAddress) -> None:
        frontend = _frontend(port, address)
        self._members[NodeSet.LOAD_BALANCER].add(frontend)
        if port.external_policy_local:
            self._members[NodeSet.LOAD_BALANCER_LOCAL].add(frontend)
        if not port.source_ranges:
            return
        self._members[NodeSet.LOAD_BALANCER_FW].add(frontend)
        for network in port.source_ranges:
            allowed = Member(address=address, protocol=port.protocol, port=port.port, other=network)
            self._members[NodeSet.LOAD_BALANCER_SOURCE_CIDR].add(allowed)
        own = self._node.primary_address(self._family)
        if any(own in network for network in port.source_ranges):
            # The node owns the address, so its own packets to it come from it.
            itself = Member(address=address, protocol=port.protocol, port=port.port, other=address)
            self._members[NodeSet.LOAD_BALANCER_SOURCE_IP].add(itself)
        else:
            self._closed.append(ServerKey(address, port.port, port.protocol))

    def _add_node_port(self, port: ServicePortInfo, endpoints: Sequence[EndpointInfo]) -> None:
        """The node port on each address. A bitmap has no protocol, so each protocol has one; SCTP has a hash."""
        everywhere, local = _NODE_PORTS[port.protocol]
        members = {Member(port=port.node_port)}
        if port.protocol is Protocol.SCTP:
            members = {Member(address=each, protocol=port.protocol, port=port.node_port) for each in self._node_ports}
        self._members[everywhere] |= members
        if port.external_policy_local:
            self._members[local] |= members
        for address in self._node_ports:
            self._serve(port, address, port.node_port, endpoints)

    def _serve_bound(self, port: ServicePortInfo, address: IPAddress, endpoints: Sequence[EndpointInfo]) -> None:
        """Serve an address that may be one of the node's own; the dummy device must not have that, too."""
        self._serve(port, address, port.port, endpoints)
        if address not in self._own:
            self._bound.add(address)

    def _serve(self, port: ServicePortInfo, address: IPAddress, number: int, endpoints: Sequence[EndpointInfo]) -> None:
        scheduler = self._settings.ipvs.scheduler
        server = VirtualServer(
            address=address,
            port=number,
            protocol=port.protocol,
            scheduler=scheduler,
            persistence=port.affinity_timeout or 0,
            scheduler_flags=_HASH_SOURCE if scheduler == "mh" else 0,
            destinations=tuple(IpvsDestination(address=each.address, port=each.port) for each in endpoints),
        )
        self._servers.setdefault(server.key, server)


def _counts(address: IPAddress) -> bool:
    """Whether an address of the node may serve: not one of loopback, nor one that each link has (fe80::/10)."""
    return not address.is_loopback and not (address.version == 6 and address.is_link_local)


def _usable(endpoints: EndpointCategories, *, local: bool) -> tuple[EndpointInfo, ...]:
    """The endpoints of a frontend: under policy Local those of this node or, if it has none, all (kubernetes#97081)."""
    return (endpoints.local if local else ()) or endpoints.cluster


def _frontend(port: ServicePortInfo, address: IPAddress) -> Member:
    return Member(address=address, protocol=port.protocol, port=port.port)


def _hairpins(port: ServicePortInfo) -> Iterator[Member]:
    """A pod's packet that IPVS sends back to it has the pod's address at both ends, ready or not."""
    for each in port.endpoints:
        if each.is_local:
            yield Member(address=each.address, protocol=port.protocol, port=each.port, other=each.address)
