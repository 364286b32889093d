"""KubeProxyConfiguration, as an author writes it or ``kubectl -n kube-system get cm kube-proxy`` shows it.

The records have every key of the kubeproxy.config.k8s.io/v1alpha1 API, with the API's defaults
(https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/). The module also compares keys with each
other, and makes the configuration of the lab's proxies.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_network
from typing import Annotated, ClassVar, Final

from msgspec import Struct, field
from msgspec.structs import asdict

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.configuration import (
    ConntrackTimeouts,
    DetectLocalMode,
    IpvsConfiguration,
    Mode,
    NftablesConfiguration,
    ProxyConfiguration,
    Scheduler,
    SocketAddress,
)
from proxylab.scenario.document import Document, Location, Problems, describe, listed, shown
from proxylab.scenario.keys import Between, Check, Key, Manifest, Read, ignored_keys, refused
from proxylab.scenario.reading import read
from proxylab.scenario.syntax import Address, read_network
from proxylab.scenario.updates import patched
from proxylab.scenario.words import Position

CONFIGURATION_KIND: Final = "KubeProxyConfiguration"

CONFIGURATION_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"

_DEFAULT: Final = ProxyConfiguration()
_PRIMARY: Final = "primary"
_LOCALHOST: Final = "localhost"
_ALL: Final = "all"
_NODE_PORT_WORDS: Final = (_PRIMARY, _LOCALHOST, _ALL)
"""The words in ``nodePortAddresses``: the node's own addresses, loopback addresses, all. The last two are of 1.37."""
_EVERYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DEVICE: Final = re.compile(r"[^\s/:+!\"\\]{1,15}")
"""A device name that the kernel allows (``dev_valid_name()``), without characters that have a meaning in a rule."""


def _absent_if_empty(value: object) -> object:
    """Read Go's zero value as absent: kubeadm writes unset keys as empty text."""
    return None if value == "" else value


def _duration(value: object) -> float:
    """Seconds, from Go's spelling: ``1h``, ``30s``, ``1m30s``, ``10ms``, ``0``."""
    if isinstance(value, str):
        if value == "0":
            return 0.0
        parts = _PART.findall(value)
        if parts and "".join(number + unit for number, unit in parts) == value:
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    raise refused(f"must be a duration, is {describe(value)}", allowed="write it as 30s, 1m30s or 10ms")


def _socket_address(default_port: int) -> Callable[[object], SocketAddress]:
    def read(value: object) -> SocketAddress:
        with suppress(ValueError):
            return SocketAddress.parse(value if isinstance(value, str) else "", default_port)
        allowed = f"write it as 0.0.0.0:{default_port}"
        raise refused(f"must be an address and port, is {describe(value)}", allowed=allowed)

    return read


def _networks(value: object) -> list[IPNetwork]:
    texts = value.split(",") if isinstance(value, str) else [value]
    return [read_network(each) for each in texts if each != ""]


def _network_or_word(value: object) -> IPNetwork | str:
    text = value if isinstance(value, str) else ""
    if text in _NODE_PORT_WORDS:
        return text
    with suppress(ValueError):
        return ip_network(text, strict=False)
    allowed = f"allowed: networks such as 172.18.0.0/16, {listed(_NODE_PORT_WORDS)}"
    raise refused(f"must be a network, is {describe(value)}", allowed=allowed, word=text, known=_NODE_PORT_WORDS)


def _mode(value: object) -> object:
    if value in ("", *Mode):
        return value or Mode.IPTABLES
    word = value if isinstance(value, str) else ""
    allowed = f"allowed: {listed(Mode)}"
    raise refused(f"the mode {shown(value)} is unknown", allowed=allowed, word=word, known=tuple(Mode))


def _device(value: object) -> str:
    if not isinstance(value, str) or not (value == "" or _DEVICE.fullmatch(value)):
        raise refused(f"must be a device's name, is {describe(value)}", allowed="allowed: 15 characters without spaces")
    return value


_Duration = Annotated[float, Read(_duration, str)]
_Networks = Annotated[tuple[IPNetwork, ...], Read(_networks, str)]
_UNSET_IF_EMPTY: Final = Read(_absent_if_empty)


class _Periods(Manifest, frozen=True, kw_only=True):
    """The keys that every mode has."""

    # The API cannot tell a zero from an absent key here (SetDefaults_KubeProxyConfiguration).
    sync_period: Annotated[
        _Duration,
        Check(lambda seconds: seconds or _DEFAULT.sync_period),
        Key("How often the proxy checks its rules; 30s by default."),
    ] = _DEFAULT.sync_period
    min_sync_period: Annotated[
        _Duration,
        Check(lambda seconds: seconds or _DEFAULT.min_sync_period),
        Key("The least time between two syncs; 0 means the default, 10ms here and 1s upstream."),
    ] = _DEFAULT.min_sync_period


class _Nftables(_Periods, frozen=True, kw_only=True):
    """``nftables``: keys of this mode."""

    masquerade_bit: Annotated[int, Between(0, 31), Key("The bit of the packet mark that requests masquerading.")] = (
        _DEFAULT.masquerade_bit
    )
    masquerade_all: Annotated[bool, Key("Masquerade all traffic to cluster IPs.")] = False


class _Iptables(_Nftables, frozen=True, kw_only=True):
    """``iptables``: the keys of nftables and one more."""

    localhost_node_ports: Annotated[bool, Key("Serve IPv4 node ports on 127.0.0.0/8 too.")] = True


class _IpvsKeys(_Periods, frozen=True, kw_only=True):
    """``ipvs``: keys of this mode."""

    scheduler: Annotated[
        Scheduler,
        Read(lambda value: value or Scheduler.RR),
        Key("The kernel's scheduler (ip_vs_*), which chooses endpoints; rr by default."),
    ] = Scheduler.RR
    exclude_cidrs: Annotated[
        tuple[Annotated[IPNetwork, Read(read_network, str)], ...],
        Key("Virtual servers with addresses in these networks are not the proxy's.", alias="excludeCIDRs"),
    ] = ()
    strict_arp: Annotated[
        bool, Key("Answer ARP only for addresses of the device that is asked.", alias="strictARP")
    ] = False
    tcp: Annotated[_Duration, Key("How long IPVS keeps idle TCP connections; 0s: as it is.", alias="tcpTimeout")] = 0
    tcp_fin: Annotated[_Duration, Key("The same after a FIN.", alias="tcpFinTimeout")] = 0
    udp: Annotated[_Duration, Key("The same for UDP.", alias="udpTimeout")] = 0


class _Conntrack(Manifest, frozen=True, kw_only=True):
    """``conntrack``: sysctls that the proxy writes when it starts."""

    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("maxPerCore", "min"), "No network namespace can set its own nf_conntrack_max."
    )

    tcp_established: Annotated[
        _Duration, Key("24h by default; 0s leaves the sysctl unchanged.", alias="tcpEstablishedTimeout")
    ] = _DEFAULT.conntrack.tcp_established
    tcp_close_wait: Annotated[
        _Duration, Key("1h by default; 0s leaves the sysctl unchanged.", alias="tcpCloseWaitTimeout")
    ] = _DEFAULT.conntrack.tcp_close_wait
    tcp_be_liberal: Annotated[bool, Key("Accept packets out of window, not INVALID.")] = False
    udp: Annotated[_Duration, Key("Unchanged by default.", alias="udpTimeout")] = _DEFAULT.conntrack.udp
    udp_stream: Annotated[_Duration, Key("Unchanged by default.", alias="udpStreamTimeout")] = (
        _DEFAULT.conntrack.udp_stream
    )


class _DetectLocal(Manifest, frozen=True, kw_only=True):
    """``detectLocal``: the devices, for the two modes that detect by device."""

    bridge_interface: Annotated[str, Read(_device), Key("The bridge, for detectLocalMode BridgeInterface.")] = ""
    interface_name_prefix: Annotated[
        str, Read(_device), Key("How device names begin, for detectLocalMode InterfaceNamePrefix.")
    ] = ""


class KubeProxyManifest(Manifest, frozen=True, kw_only=True):
    """The document."""

    without_effect: ClassVar[Mapping[str, str]] = {
        "metadata": "Not used.",
        "clientConnection": "The lab has its own API server.",
        "hostnameOverride": "The lab names its nodes itself.",
        **dict.fromkeys(
            ("logging", "bindAddressHardFail", "enableProfiling", "showHiddenMetricsForVersion", "oomScoreAdj"),
            "It changes no rule; the lab does not pass it on.",
        ),
        "winkernel": "For mode kernelspace.",
        "configSyncPeriod": "The proxy never polls the lab's store.",
        "portRange": "For mode userspace.",
        "windowsRunAsService": "For Windows.",
    }

    api_version: Annotated[str, Key("It is kubeproxy.config.k8s.io/v1alpha1.")]
    kind: Annotated[str, Key("It is KubeProxyConfiguration.")]
    mode: Annotated[Mode, Read(_mode), Key("The proxy mode.")] = Mode.IPTABLES
    detect_local_mode: Annotated[
        DetectLocalMode | None,
        _UNSET_IF_EMPTY,
        Key("How the proxy recognises traffic of local pods; ClusterCIDR by default."),
    ] = None
    detect_local: Annotated[_DetectLocal, Key("Devices for detectLocalMode.")] = _DetectLocal()
    cluster_cidr: Annotated[
        _Networks | None,
        Key(
            "The pod networks, one per family; without the key the lab's own, with empty text none.",
            alias="clusterCIDR",
        ),
    ] = None
    node_port_addresses: Annotated[
        tuple[Annotated[IPNetwork | str, Read(_network_or_word)], ...],
        Key(
            "The addresses that serve node ports: networks, primary (the node's own), localhost or all; all by "
            "default. localhost, and primary beside another entry, are of kube-proxy 1.37; embedded engines refuse "
            "them."
        ),
    ] = ()
    udp_idle_timeout: Annotated[
        _Duration,
        Check(lambda seconds: seconds or _DEFAULT.udp_idle_timeout),
        Key("How long mode userspace keeps the endpoint of a UDP client that is silent; 250ms by default."),
    ] = _DEFAULT.udp_idle_timeout
    iptables: Annotated[_Iptables, Key("Keys of mode iptables.")] = _Iptables()
    nftables: Annotated[_Nftables, Key("Keys of mode nftables.")] = _Nftables()
    ipvs: Annotated[_IpvsKeys, Key("Keys of mode ipvs; it takes masquerading from iptables.")] = _IpvsKeys()
    feature_gates: Annotated[
        Mapping[str, bool],
        Key("Feature gates of the real kube-proxy; embedded engines refuse those that they do not have."),
    ] = field(default_factory=dict)
    conntrack: Annotated[_Conntrack, Key("Sysctls of connection tracking.")] = _Conntrack()
    bind_address: Annotated[
        Address | None,
        _UNSET_IF_EMPTY,
        Key(
            "The primary address of every node. With 0.0.0.0 or :: each node keeps its own, and with :: the next two "
            "keys default to IPv6 addresses."
        ),
    ] = None
    healthz_bind_address: Annotated[
        Annotated[SocketAddress, Read(_socket_address(10256), str)] | None,
        _UNSET_IF_EMPTY,
        Key("0.0.0.0:10256 by default; 0.0.0.0 and [::] both mean every address of both families."),
    ] = None
    metrics_bind_address: Annotated[
        Annotated[SocketAddress, Read(_socket_address(10249), str)] | None,
        _UNSET_IF_EMPTY,
        Key("127.0.0.1:10249 by default; 0.0.0.0 and [::] both mean every address of both families."),
    ] = None


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
    manifest = read(KubeProxyManifest, location, problems)
    if manifest is None:
        return Configured()
    _check(manifest, location, problems)
    return Configured(_configuration(manifest), tuple(sorted(ignored_keys(manifest, location.value))))


def configuration_head() -> Location:
    """The base of a patch where the file has no configuration: a document with every default."""
    value = {"apiVersion": CONFIGURATION_VERSION, "kind": CONFIGURATION_KIND}
    return Location(Document(value, Position("", 1, 1), {}))


def read_patched(base: Location, patch: Location, problems: Problems) -> tuple[Location, ProxyConfiguration | None]:
    """The document with a merge patch, and the configuration that it says if it is well-formed."""
    whole = patched(base, patch)
    manifest = read(KubeProxyManifest, whole, problems)
    if manifest is None:
        return whole, None
    _check(manifest, whole, problems)
    return whole, _configuration(manifest)


def _check(manifest: KubeProxyManifest, location: Location, problems: Problems) -> None:
    """The rules between keys (pkg/proxy/apis/config/validation)."""
    needed = {
        DetectLocalMode.BRIDGE_INTERFACE: ("bridgeInterface", manifest.detect_local.bridge_interface),
        DetectLocalMode.INTERFACE_NAME_PREFIX: ("interfaceNamePrefix", manifest.detect_local.interface_name_prefix),
    }
    if manifest.detect_local_mode in needed:
        key, given = needed[manifest.detect_local_mode]
        if not given:
            problems.add(
                location["detectLocal"][key].spot,
                f"is missing: detectLocalMode {manifest.detect_local_mode} needs it",
                allowed="add it, or choose another mode",
            )
    addresses = manifest.node_port_addresses
    for index, each in enumerate(addresses):
        if each in _NODE_PORT_WORDS and each in addresses[:index]:
            problems.add(
                location["nodePortAddresses"][index].spot, f"{each} appears twice", allowed="remove one of the two"
            )
    families = [network.version for network in manifest.cluster_cidr or ()]
    if len(families) > len(set(families)):
        problems.add(
            location["clusterCIDR"].spot, "has two networks of one family", allowed="at most one of each family"
        )
    for key, section in {"iptables": manifest.iptables, "nftables": manifest.nftables, "ipvs": manifest.ipvs}.items():
        if section.min_sync_period > section.sync_period:
            what = f"{section.min_sync_period:g} s is longer than the syncPeriod of {section.sync_period:g} s"
            problems.add(location[key]["minSyncPeriod"].spot, what, allowed="make it no longer")


def _configuration(manifest: KubeProxyManifest) -> ProxyConfiguration:
    addresses, bind = manifest.node_port_addresses, manifest.bind_address
    healthz, metrics = _servers(bind)
    return ProxyConfiguration(
        bind_address=None if bind is None or bind.is_unspecified else bind,
        detect_local_mode=manifest.detect_local_mode or _DEFAULT.detect_local_mode,
        cluster_cidrs=manifest.cluster_cidr,
        **asdict(manifest.detect_local),
        node_port_addresses=(
            *(each for each in addresses if isinstance(each, IPNetwork)),
            *(_EVERYWHERE if _ALL in addresses else ()),
        ),
        node_port_primary=_PRIMARY in addresses,
        node_port_localhost=_LOCALHOST in addresses,
        **asdict(manifest.iptables),
        conntrack=ConntrackTimeouts(**asdict(manifest.conntrack)),
        healthz=manifest.healthz_bind_address or healthz,
        metrics=manifest.metrics_bind_address or metrics,
        nftables=NftablesConfiguration(**asdict(manifest.nftables)),
        ipvs=IpvsConfiguration(**asdict(manifest.ipvs)),
        udp_idle_timeout=manifest.udp_idle_timeout,
        feature_gates=manifest.feature_gates,
    )


def _servers(bind: IPAddress | None) -> tuple[SocketAddress, SocketAddress]:
    """The default addresses of health and metrics, in the family of ``bindAddress``."""
    if bind is None or bind.version == 4:
        return _DEFAULT.healthz, _DEFAULT.metrics
    return (
        SocketAddress(IPv6Address("::"), _DEFAULT.healthz.port),
        SocketAddress(IPv6Address("::1"), _DEFAULT.metrics.port),
    )
