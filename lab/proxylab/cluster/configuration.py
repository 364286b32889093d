"""A ``KubeProxyConfiguration`` after defaulting: the keys that affect a proxy on Linux.

The defaults are kube-proxy's own (pkg/proxy/apis/config/v1alpha1/defaults.go), except ``min_sync_period``. Times are in
seconds. ``scenario.configuration`` reads the document.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Address, ip_address
from typing import Final, Self

from msgspec import Struct, field

from proxylab.addresses import IPAddress, IPNetwork, with_port
from proxylab.encoding import Record


class DetectLocalMode(StrEnum):
    """``detectLocalMode``: how the proxy recognises traffic of local pods."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class ModeFacts(Struct, frozen=True, kw_only=True):
    """What is known of a mode without an engine.

    Attributes:
        since: the first version of kube-proxy that has it; empty for a mode that is older than all engines.
        last_minor: the last minor version that has it; empty if the newest does.
        terminates: whether a program ends connections to Services and opens other ones to endpoints.
        reads_node_port_addresses: whether ``nodePortAddresses`` chooses the addresses that serve node ports.
        primary_by_default: whether only a node's primary addresses serve node ports where that key is absent.
        serves_loopback: whether loopback addresses of IPv4 can serve node ports (``localhostNodePorts``).
        masquerading: the section of the configuration with its keys of masquerading.
    """

    since: tuple[int, ...] = ()
    last_minor: tuple[int, ...] = ()
    terminates: bool = False
    reads_node_port_addresses: bool = True
    primary_by_default: bool = False
    serves_loopback: bool = False
    masquerading: str = "iptables"


class Mode(StrEnum):
    """The mode of a proxy, as ``KubeProxyConfiguration`` spells it."""

    facts: ModeFacts

    def __new__(cls, word: str, facts: ModeFacts | None = None) -> Self:
        mode = str.__new__(cls, word)
        mode._value_ = word
        mode.facts = facts or ModeFacts()
        return mode

    IPTABLES = "iptables", ModeFacts(serves_loopback=True)
    NFTABLES = "nftables", ModeFacts(since=(1, 29), primary_by_default=True, masquerading="nftables")
    IPVS = "ipvs"
    USERSPACE = "userspace", ModeFacts(last_minor=(1, 25), terminates=True, reads_node_port_addresses=False)


TERMINATING_MODES: Final = frozenset(mode for mode in Mode if mode.facts.terminates)
"""The modes in which a program ends connections to Services and opens other ones to endpoints."""


_LAST_PORT: Final = 65535


class SocketAddress(Record, frozen=True):
    """An address and a port, such as those on which a server listens."""

    address: IPAddress
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int = 0) -> Self:
        """The address and port of ``10.0.0.1:80`` or ``[fd00::1]:80``. Raises ``ValueError``."""
        host, port = text, str(default_port)
        if bracketed := re.fullmatch(r"\[([^]]*)\](?::(\d+))?", text):
            host, port = bracketed[1], bracketed[2] or port
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= _LAST_PORT):
            raise ValueError(f"{port!r} is not a port")
        return cls(ip_address(host), int(port))

    def __str__(self) -> str:
        return with_port(self.address, self.port)


class ConntrackTimeouts(Record, frozen=True, kw_only=True):
    """``conntrack``: values that the proxy writes to the node's sysctls. 0 leaves the node's own value.

    ``maxPerCore`` and ``min`` are absent: no network namespace can set its own ``nf_conntrack_max``.
    """

    tcp_established: float = 86400
    tcp_close_wait: float = 3600
    udp: float = 0
    udp_stream: float = 0
    tcp_be_liberal: bool = False


_LEAST_PERIOD: Final = 0.01
"""Seconds. kube-proxy's own default is one second, which would delay every change of a scenario."""


class NftablesConfiguration(Record, frozen=True, kw_only=True):
    """``nftables``: the settings of mode nftables, which ignores the keys of ``iptables``."""

    masquerade_bit: int = 14
    masquerade_all: bool = False
    sync_period: float = 30
    min_sync_period: float = _LEAST_PERIOD


class Scheduler(StrEnum):
    """``ipvs.scheduler``: who gets a new connection (net/netfilter/ipvs/ip_vs_*.c).

    ``rr`` and ``wrr`` take turns; ``lc``, ``wlc``, ``sed`` and ``nq`` look at open connections; ``lblc``, ``dh``,
    ``sh`` and ``mh`` go by addresses.
    """

    RR = "rr"
    WRR = "wrr"
    LC = "lc"
    WLC = "wlc"
    LBLC = "lblc"
    LBLCR = "lblcr"
    DH = "dh"
    SH = "sh"
    SED = "sed"
    NQ = "nq"
    MH = "mh"


class IpvsConfiguration(Record, frozen=True, kw_only=True):
    """``ipvs``: the settings of mode ipvs, which takes the masquerading of ``iptables``.

    Attributes:
        scheduler: the module of the kernel that chooses destinations, for all virtual servers.
        exclude_cidrs: virtual servers with addresses in these networks are not the proxy's.
        strict_arp: the node answers ARP only for addresses of the device that is asked.
        tcp: how long IPVS keeps an idle connection, in seconds; 0 leaves the kernel's value. ``tcp_fin`` after a FIN.
    """

    scheduler: Scheduler = Scheduler.RR
    exclude_cidrs: tuple[IPNetwork, ...] = ()
    strict_arp: bool = False
    tcp: float = 0
    tcp_fin: float = 0
    udp: float = 0
    sync_period: float = 30
    min_sync_period: float = _LEAST_PERIOD


class ProxyConfiguration(Record, frozen=True, kw_only=True):
    """The configuration of every proxy in the cluster.

    Attributes:
        bind_address: the node's primary address, instead of its Node object's; ``None`` keeps the object's.
        cluster_cidrs: ``None`` if the document has no such key: the lab's own pod networks. Empty: no detector.
        node_port_addresses: networks; no network of a family means all local addresses of it.
        node_port_primary: ``primary`` among them, the addresses of the Node object.
        node_port_localhost: ``localhost`` among them, which kube-proxy 1.37 serves in mode nftables by a process.
        udp_idle_timeout: seconds for which mode userspace keeps the endpoint of a silent UDP client.
        feature_gates: of the real kube-proxy; an embedded engine refuses those that it does not behave like.
    """

    detect_local_mode: DetectLocalMode = DetectLocalMode.CLUSTER_CIDR
    bind_address: IPAddress | None = None
    cluster_cidrs: tuple[IPNetwork, ...] | None = None
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    node_port_addresses: tuple[IPNetwork, ...] = ()
    node_port_primary: bool = False
    node_port_localhost: bool = False
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: float = 30
    min_sync_period: float = _LEAST_PERIOD
    conntrack: ConntrackTimeouts = ConntrackTimeouts()
    healthz: SocketAddress = SocketAddress(IPv4Address("0.0.0.0"), 10256)  # noqa: S104 - as kube-proxy does
    metrics: SocketAddress = SocketAddress(IPv4Address("127.0.0.1"), 10249)
    nftables: NftablesConfiguration = NftablesConfiguration()
    ipvs: IpvsConfiguration = IpvsConfiguration()
    udp_idle_timeout: float = 0.25
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def node_port_words(self) -> tuple[str, ...]:
        """The words of ``nodePortAddresses``, which stand for addresses of the node."""
        given = {"primary": self.node_port_primary, "localhost": self.node_port_localhost}
        return tuple(word for word, there in given.items() if there)

    @property
    def needs_node_port_words(self) -> bool:
        """Whether ``nodePortAddresses`` is such that only kube-proxy 1.37 and later serve it."""
        return self.node_port_localhost or (self.node_port_primary and bool(self.node_port_addresses))


KEYS_OF_MODES: Final[Mapping[str, str]] = {
    "localhost_node_ports": "iptables.localhostNodePorts",
    "masquerade_all": "iptables.masqueradeAll",
    "masquerade_bit": "iptables.masqueradeBit",
    "nftables": "nftables",
    "ipvs": "ipvs",
    "udp_idle_timeout": "udpIdleTimeout",
    "node_port_addresses": "nodePortAddresses",
    "node_port_primary": "nodePortAddresses",
}
"""The key of each field of ``ProxyConfiguration`` that not every mode reads."""


def go_duration(seconds: float) -> str:
    """A duration as Go writes it, and kube-proxy reads it."""
    return f"{round(seconds * 1000)}ms"
