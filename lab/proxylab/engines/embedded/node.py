"""A proxy's knowledge of its node; the caller hands in the addresses on the node's interfaces."""

from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.objects import ZONE_LABEL, Node

__all__ = ["NodeFacts"]

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
