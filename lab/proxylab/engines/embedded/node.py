"""A proxy's knowledge of its node, in every mode.

Owns ``NodeFacts``, which of the node's addresses serve node ports and health-check node ports, and which traffic is
that of local pods. The caller hands in the addresses on the node's interfaces.
"""

from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.objects import ZONE_LABEL, Node
from proxylab.engines.embedded.settings import (
    BridgeInterface,
    ClusterCIDR,
    DetectLocal,
    InterfaceNamePrefix,
    NodeCIDR,
    ProxySettings,
)

LOOPBACK: dict[Family, IPAddress] = {Family.IPV4: IPv4Address("127.0.0.1"), Family.IPV6: IPv6Address("::1")}


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One node, as its proxy sees it.

    Attributes:
        zone: of ``topology.kubernetes.io/zone``; empty where the node has none.
        addresses: of the Node object, primary first.
        interface_addresses: on the node's interfaces, loopback included; only ``nodePortAddresses`` needs them.
    """

    name: str
    zone: str = ""
    addresses: tuple[IPAddress, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()
    interface_addresses: tuple[IPAddress, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        node: Node | None,
        interface_addresses: tuple[IPAddress, ...] = (),
        primary: IPAddress | None = None,
    ) -> "NodeFacts":
        """The facts of a Node object, which may be missing; ``primary`` comes before its addresses."""
        first = () if primary is None else (primary,)
        if node is None:
            return cls(name=name, addresses=first, interface_addresses=interface_addresses)
        return cls(
            name=name,
            zone=node.labels.get(ZONE_LABEL, ""),
            addresses=first + node.addresses,
            pod_cidrs=node.pod_cidrs,
            interface_addresses=interface_addresses,
        )

    def primary_address(self, family: Family) -> IPAddress:
        """The node's IP. As in kube-proxy, it is a loopback address while the Node object names none."""
        return next((address for address in self.addresses if Family.of(address) is family), LOOPBACK[family])


def node_port_addresses(family: Family, settings: ProxySettings, node: NodeFacts) -> tuple[IPAddress, ...] | None:
    """The addresses that ``nodePortAddresses`` chooses; ``None`` where it chooses all addresses of the family.

    ``primary`` chooses all addresses of a family in which the node has no address. As in kube-proxy
    (pkg/proxy/util/nodeport_addresses.go), the list counts for each family by itself.
    """
    if settings.node_port_primary:
        primary = node.primary_address(family)
        return None if primary.is_loopback else tuple({primary}.intersection(node.interface_addresses))
    chosen = [cidr for cidr in settings.node_port_addresses if Family.of(cidr) is family]
    if not chosen or any(cidr.prefixlen == 0 for cidr in chosen):
        return None
    own = {address for address in node.interface_addresses if any(address in cidr for cidr in chosen)}
    return tuple(sorted(own, key=int))


def local_source(
    mode: DetectLocal, family: Family, node: NodeFacts
) -> IPNetwork | BridgeInterface | InterfaceNamePrefix | None:
    """The network or device that local traffic comes from; ``None`` where the mode has no network of this family."""
    match mode:
        case ClusterCIDR(cidrs):
            return _first(cidrs, family)
        case NodeCIDR():
            return _first(node.pod_cidrs, family)
        case device:
            return device


def _first(cidrs: tuple[IPNetwork, ...], family: Family) -> IPNetwork | None:
    return next((cidr for cidr in cidrs if Family.of(cidr) is family), None)
