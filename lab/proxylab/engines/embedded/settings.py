"""A proxy's settings, as far as they shape rules; the ways to detect local traffic; and the periods of its sync loop.

Names and defaults are those of ``KubeProxyConfiguration`` (kubeproxy.config.k8s.io/v1alpha1), in snake case.
"""

from ipaddress import IPv4Network
from typing import Final, Literal

from msgspec import Struct

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.configuration import DetectLocalMode, IpvsConfiguration, ProxyConfiguration

LOOPBACK: Final = IPv4Network("127.0.0.0/8")


class ClusterCIDR(Struct, frozen=True):
    """Traffic from the pod network is local. Only the first network of each family counts."""

    cidrs: tuple[IPNetwork, ...] = ()


class NodeCIDR(Struct, frozen=True):
    """Traffic from this node's own pod network (``Node.spec.podCIDRs``) is local."""


class BridgeInterface(Struct, frozen=True):
    """Traffic that comes in by this bridge is local."""

    device: str


class InterfaceNamePrefix(Struct, frozen=True):
    """Traffic that comes in by a device with this name prefix is local."""

    prefix: str


DetectLocal = ClusterCIDR | NodeCIDR | BridgeInterface | InterfaceNamePrefix


class Periods(Struct, frozen=True, kw_only=True):
    """The periods of a sync loop.

    Attributes:
        least: ``minSyncPeriod``, the least time between two syncs once the burst is spent.
        sync: ``syncPeriod``, how often the loop looks for its canary chains, and how soon it retries a failed load.
        full: how often the loop runs a full sync without another reason.
    """

    least: float = 1.0
    sync: float = 30.0
    full: float = 3600.0


class ProxySettings(Struct, frozen=True, kw_only=True):
    """Settings of one proxy.

    Attributes:
        masquerade_all: masquerade every packet to a cluster IP.
        masquerade_bit: the bit of the packet mark that asks for masquerading.
        detect_local: how the proxy detects traffic of local pods.
        node_port_addresses: node ports are served on local addresses in these networks; none of a family means all.
        node_port_primary: node ports are served on the node's primary address only.
        localhost_node_ports: serve IPv4 node ports on loopback addresses too.
        forget_stale_udp: which UDP flows the proxy deletes when endpoints go: ``always`` all flows to an endpoint that
            does not serve; ``1.36`` (which means 1.32 to 1.36.1) only those of Services that still have an endpoint;
            ``deleted`` only those of frontends that are gone, as mode userspace, whose own process is the other end.
        health_checks_collide: whether a list of IPv4 networks keeps health-check node ports from IPv6: before 1.36
            the proxier of IPv6 listens at all addresses of both families then, where that of IPv4 listens already
            (kubernetes#114702).
        healthz_of_node: whether healthz answers 503 on a node that is about to go, beside a livez that does not. Before
            1.28 there is no livez.
        node_address: the node's primary address in its family, in place of the Node object's (``bindAddress``).
        packet_counters: whether the ``nfacct`` counters exist into which some of kube-proxy's rules count.
        random_fully: masquerading draws source ports fully at random (needs iptables 1.6.2).
        conntrack_tcp_be_liberal: whether ``nf_conntrack_tcp_be_liberal`` was set when the proxy started. Out-of-window
            packets are then not INVALID, and the proxy writes no rule against them (kubernetes#120354).
        ipvs: the settings of mode ipvs.
    """

    masquerade_all: bool = False
    masquerade_bit: int = 14
    detect_local: DetectLocal = ClusterCIDR()
    node_port_addresses: tuple[IPNetwork, ...] = ()
    node_port_primary: bool = False
    localhost_node_ports: bool = True
    forget_stale_udp: Literal["always", "1.36", "deleted"] = "always"
    health_checks_collide: bool = False
    healthz_of_node: bool = True
    node_address: IPAddress | None = None
    packet_counters: bool = False
    random_fully: bool = True
    conntrack_tcp_be_liberal: bool = False
    ipvs: IpvsConfiguration = IpvsConfiguration()

    @classmethod
    def of(cls, configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> "ProxySettings":
        """The settings that follow from a configuration, in a lab with these pod networks."""
        return cls(
            masquerade_all=configuration.masquerade_all,
            masquerade_bit=configuration.masquerade_bit,
            detect_local=_detect_local(configuration, pod_networks),
            node_port_addresses=configuration.node_port_addresses,
            node_port_primary=configuration.node_port_primary,
            localhost_node_ports=configuration.localhost_node_ports,
            node_address=configuration.bind_address,
            conntrack_tcp_be_liberal=configuration.conntrack.tcp_be_liberal,
            ipvs=configuration.ipvs,
        )

    @property
    def serves_loopback(self) -> bool:
        """Whether loopback addresses serve IPv4 node ports: only where ``node_port_addresses`` includes some."""
        if not self.localhost_node_ports or self.node_port_primary:
            return False
        chosen = [cidr for cidr in self.node_port_addresses if isinstance(cidr, IPv4Network)]
        return not chosen or any(cidr.overlaps(LOOPBACK) for cidr in chosen)

    @property
    def masquerade_mark(self) -> int:
        """The packet mark with ``masquerade_bit`` set."""
        return 1 << self.masquerade_bit


def _detect_local(configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> DetectLocal:
    match configuration.detect_local_mode:
        case DetectLocalMode.CLUSTER_CIDR:
            given = configuration.cluster_cidrs
            return ClusterCIDR(pod_networks if given is None else given)
        case DetectLocalMode.NODE_CIDR:
            return NodeCIDR()
        case DetectLocalMode.BRIDGE_INTERFACE:
            return BridgeInterface(configuration.bridge_interface)
        case DetectLocalMode.INTERFACE_NAME_PREFIX:
            return InterfaceNamePrefix(configuration.interface_name_prefix)
