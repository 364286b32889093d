"""A ``KubeProxyConfiguration`` after defaulting, as far as a proxy on Linux goes by it.

Owns: ``ProxyConfiguration`` with kube-proxy's own defaults (pkg/proxy/apis/config/v1alpha1/defaults.go), but for one.
Must not: read documents (``scenario.configuration`` does), or know what an engine makes of it.

Times are in seconds.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Final

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.frozen import dataclass

__all__ = ["ConntrackTimeouts", "DetectLocalMode", "NftablesConfiguration", "ProxyConfiguration", "SocketAddress"]


class DetectLocalMode(StrEnum):
    """``detectLocalMode``: how traffic of local pods is told from any other."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Where a server listens."""

    address: IPAddress
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}" if self.address.version == 4 else f"[{self.address}]:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConntrackTimeouts:
    """``conntrack``: what the proxy writes to the node's sysctls. 0 leaves the node's own value.

    ``maxPerCore`` and ``min`` are not here: ``nf_conntrack_max`` cannot be written in a network namespace.
    """

    tcp_established: float = 86400
    tcp_close_wait: float = 3600
    udp: float = 0
    udp_stream: float = 0
    tcp_be_liberal: bool = False


_LEAST_PERIOD: Final = 0.01
"""Seconds. kube-proxy's own default is a second, for which every change of a scenario would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NftablesConfiguration:
    """``nftables``: what mode nftables has of its own, where the keys of ``iptables`` do not count."""

    masquerade_bit: int = 14
    masquerade_all: bool = False
    sync_period: float = 30
    min_sync_period: float = _LEAST_PERIOD


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfiguration:
    """The configuration of every proxy in the cluster.

    Attributes:
        bind_address: the node's primary address, whatever its Node object says; ``None`` where nothing is to be said.
        cluster_cidrs: ``None`` where the document does not say: the lab's own pod networks. Empty: no detector.
        node_port_addresses: networks; none of a family means all local addresses.
        node_port_primary: ``nodePortAddresses: [primary]``, the node's own addresses as its Node object has them.
        feature_gates: for the real kube-proxy, whose gates they are; the embedded engine has none.
    """

    detect_local_mode: DetectLocalMode = DetectLocalMode.CLUSTER_CIDR
    bind_address: IPAddress | None = None
    cluster_cidrs: tuple[IPNetwork, ...] | None = None
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    node_port_addresses: tuple[IPNetwork, ...] = ()
    node_port_primary: bool = False
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: float = 30
    min_sync_period: float = _LEAST_PERIOD
    conntrack: ConntrackTimeouts = ConntrackTimeouts()
    healthz: SocketAddress = SocketAddress(IPv4Address("0.0.0.0"), 10256)  # noqa: S104 - as kube-proxy does
    metrics: SocketAddress = SocketAddress(IPv4Address("127.0.0.1"), 10249)
    nftables: NftablesConfiguration = NftablesConfiguration()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
