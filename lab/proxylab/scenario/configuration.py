"""Read a KubeProxyConfiguration document as the configuration of the lab's proxies, with the API's defaults."""

from collections.abc import Sequence
from ipaddress import IPv6Address

from msgspec import Struct

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.configuration import (
    ConntrackTimeouts,
    DetectLocalMode,
    NftablesConfiguration,
    ProxyConfiguration,
    SocketAddress,
)
from proxylab.scenario.document import Location
from proxylab.scenario.problems import Problems, listed
from proxylab.scenario.schema.base import ignored_keys
from proxylab.scenario.schema.kubeproxy import (
    PRIMARY,
    ConntrackShape,
    DetectLocalShape,
    IptablesShape,
    KubeProxyShape,
    NftablesShape,
)
from proxylab.scenario.validation import validated
from proxylab.scenario.words import RUNNING_MODES, Mode

__all__ = ["CONFIGURATION_KIND", "CONFIGURATION_VERSION", "Configured", "read_configuration"]

CONFIGURATION_KIND = "KubeProxyConfiguration"

CONFIGURATION_VERSION = "kubeproxy.config.k8s.io/v1alpha1"

_DEFAULT = ProxyConfiguration()


class Configured(Struct, frozen=True):
    """What a file says of its proxies; ``ignored`` are the keys that are there and have no effect."""

    configuration: ProxyConfiguration | None = None
    ignored: tuple[str, ...] = ()


def read_configuration(documents: Sequence[Location], problems: Problems) -> Configured:
    """Read the file's KubeProxyConfiguration, if any; a file may hold one."""
    for surplus in documents[1:]:
        problems.add(surplus.spot, f"the file has a second {CONFIGURATION_KIND}", allowed="one configures all proxies")
    if not documents:
        return Configured()
    location = documents[0]
    version = location["apiVersion"].value
    if version != CONFIGURATION_VERSION:
        allowed = f"allowed: {CONFIGURATION_VERSION}"
        problems.add(location["apiVersion"].spot, f"is not a version of {CONFIGURATION_KIND}", allowed=allowed)
        return Configured()
    shape = validated(KubeProxyShape, location, problems)
    if shape is None:
        return Configured()
    _check(shape, location, problems)
    return Configured(_configuration(shape), tuple(sorted(ignored_keys(shape))))


def _check(shape: KubeProxyShape, location: Location, problems: Problems) -> None:
    """The rules between keys (pkg/proxy/apis/config/validation), and the modes that no engine has."""
    if location["mode"].value == Mode.IPVS:
        what = f"not yet: this version cannot run mode {Mode.IPVS}"
        problems.add(location["mode"].spot, what, allowed=f"allowed: {listed(RUNNING_MODES)}")
    detect = shape.detect_local or DetectLocalShape()
    needed = {
        DetectLocalMode.BRIDGE_INTERFACE: ("bridgeInterface", detect.bridge_interface),
        DetectLocalMode.INTERFACE_NAME_PREFIX: ("interfaceNamePrefix", detect.interface_name_prefix),
    }
    if shape.detect_local_mode in needed:
        key, given = needed[shape.detect_local_mode]
        if not given:
            problems.add(
                location["detectLocal"][key].spot,
                f"is missing: detectLocalMode {shape.detect_local_mode} needs it",
                allowed="add it, or choose another mode",
            )
    addresses = shape.node_port_addresses or []
    if PRIMARY in addresses and len(addresses) > 1:
        problems.add(
            location["nodePortAddresses"].spot, f"{PRIMARY} must be the only entry", allowed="remove the others"
        )
    families = [network.version for network in shape.cluster_cidr or ()]
    if len(families) > len(set(families)):
        problems.add(
            location["clusterCIDR"].spot, "has two networks of one family", allowed="at most one of each family"
        )
    sections: dict[str, NftablesShape] = {
        "iptables": shape.iptables or IptablesShape(),
        "nftables": shape.nftables or NftablesShape(),
    }
    for key, section in sections.items():
        sync = section.sync_period or _DEFAULT.sync_period
        least = section.min_sync_period or _DEFAULT.min_sync_period
        if least > sync:
            spot = location[key]["minSyncPeriod"].spot
            problems.add(spot, f"{least:g} s is longer than the syncPeriod of {sync:g} s", allowed="make it no longer")


def _configuration(shape: KubeProxyShape) -> ProxyConfiguration:
    detect, iptables = shape.detect_local or DetectLocalShape(), shape.iptables or IptablesShape()
    addresses = shape.node_port_addresses or []
    bind = shape.bind_address
    healthz, metrics = _servers(bind)
    return ProxyConfiguration(
        bind_address=None if bind is None or bind.is_unspecified else bind,
        detect_local_mode=shape.detect_local_mode or _DEFAULT.detect_local_mode,
        cluster_cidrs=shape.cluster_cidr,
        bridge_interface=detect.bridge_interface or "",
        interface_name_prefix=detect.interface_name_prefix or "",
        node_port_addresses=tuple(each for each in addresses if isinstance(each, IPNetwork)),
        node_port_primary=PRIMARY in addresses,
        masquerade_bit=_DEFAULT.masquerade_bit if iptables.masquerade_bit is None else iptables.masquerade_bit,
        masquerade_all=iptables.masquerade_all or False,
        localhost_node_ports=iptables.localhost_node_ports is not False,
        # The API cannot tell a zero from an absent key here (SetDefaults_KubeProxyConfiguration).
        sync_period=iptables.sync_period or _DEFAULT.sync_period,
        min_sync_period=iptables.min_sync_period or _DEFAULT.min_sync_period,
        conntrack=_conntrack(shape.conntrack or ConntrackShape()),
        healthz=shape.healthz_bind_address or healthz,
        metrics=shape.metrics_bind_address or metrics,
        nftables=_nftables(shape.nftables or NftablesShape()),
        feature_gates=shape.feature_gates or {},
    )


def _nftables(shape: NftablesShape) -> NftablesConfiguration:
    default = _DEFAULT.nftables
    return NftablesConfiguration(
        masquerade_bit=default.masquerade_bit if shape.masquerade_bit is None else shape.masquerade_bit,
        masquerade_all=shape.masquerade_all or False,
        sync_period=shape.sync_period or default.sync_period,
        min_sync_period=shape.min_sync_period or default.min_sync_period,
    )


def _servers(bind: IPAddress | None) -> tuple[SocketAddress, SocketAddress]:
    """The default addresses of health and metrics, in the family of ``bindAddress``."""
    if bind is None or bind.version == 4:
        return _DEFAULT.healthz, _DEFAULT.metrics
    return (
        SocketAddress(IPv6Address("::"), _DEFAULT.healthz.port),
        SocketAddress(IPv6Address("::1"), _DEFAULT.metrics.port),
    )


def _conntrack(shape: ConntrackShape) -> ConntrackTimeouts:
    default = _DEFAULT.conntrack
    return ConntrackTimeouts(
        tcp_established=_given(shape.tcp_established_timeout, default.tcp_established),
        tcp_close_wait=_given(shape.tcp_close_wait_timeout, default.tcp_close_wait),
        udp=_given(shape.udp_timeout, default.udp),
        udp_stream=_given(shape.udp_stream_timeout, default.udp_stream),
        tcp_be_liberal=shape.tcp_be_liberal or False,
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value
