"""How a proxy is configured, as far as it shapes rules.

Owns: ``ProxySettings`` and the ways to tell local traffic.
Must not: read configuration files.

Names and defaults are those of ``KubeProxyConfiguration`` (kubeproxy.config.k8s.io/v1alpha1), in snake case.
"""

from dataclasses import dataclass

from lab.ip import IPNetwork

__all__ = [
    "BridgeInterface",
    "ClusterCIDR",
    "DetectLocal",
    "InterfaceNamePrefix",
    "NodeCIDR",
    "ProxySettings",
]


@dataclass(frozen=True, slots=True)
class ClusterCIDR:
    """Local is what comes from the pod network: of each family the first network counts; none, no detector."""

    cidrs: tuple[IPNetwork, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeCIDR:
    """Local is what comes from this node's own pod network (``Node.spec.podCIDRs``)."""


@dataclass(frozen=True, slots=True)
class BridgeInterface:
    """Local is what comes in by this bridge."""

    device: str


@dataclass(frozen=True, slots=True)
class InterfaceNamePrefix:
    """Local is what comes in by a device whose name begins like this."""

    prefix: str


DetectLocal = ClusterCIDR | NodeCIDR | BridgeInterface | InterfaceNamePrefix


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Settings of one proxy.

    Attributes:
        masquerade_all: masquerade every packet to a cluster IP.
        masquerade_bit: the bit of the packet mark that asks for masquerading.
        detect_local: how traffic of local pods is told from any other.
        node_port_addresses: node ports are served on local addresses in these networks; none of a family means all.
        localhost_node_ports: serve IPv4 node ports on loopback addresses too.
        random_fully: let masquerading draw source ports fully at random (iptables 1.6.2 and later can).
        conntrack_tcp_be_liberal: whether ``nf_conntrack_tcp_be_liberal`` was set when the proxy started. Out-of-window
            packets are then not INVALID, and the rule against them is left out (kubernetes#120354).
    """

    masquerade_all: bool = False
    masquerade_bit: int = 14
    detect_local: DetectLocal = ClusterCIDR()
    node_port_addresses: tuple[IPNetwork, ...] = ()
    localhost_node_ports: bool = True
    random_fully: bool = True
    conntrack_tcp_be_liberal: bool = False

    @property
    def masquerade_mark(self) -> int:
        """The mark itself."""
        return 1 << self.masquerade_bit
