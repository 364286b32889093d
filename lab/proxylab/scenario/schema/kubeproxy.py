"""KubeProxyConfiguration, as an author writes it or ``kubectl -n kube-system get cm kube-proxy`` shows it.

The shapes have every key of the kubeproxy.config.k8s.io/v1alpha1 API
(https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/). ``proxylab.scenario.configuration``
fills in defaults and compares keys with each other.
"""

import re
from contextlib import suppress
from ipaddress import ip_network
from typing import Annotated

from pydantic import BeforeValidator, Field, InstanceOf

from proxylab.addresses import IPNetwork
from proxylab.cluster.configuration import DetectLocalMode, SocketAddress
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.model import Mode
from proxylab.scenario.problems import describe, listed, shown
from proxylab.scenario.schema.base import Ignored, ManifestShape, word_of
from proxylab.scenario.syntax import Address
from proxylab.scenario.words import RUNNING_MODES

__all__ = ["PRIMARY", "ConntrackShape", "DetectLocalShape", "IptablesShape", "KubeProxyShape", "NftablesShape"]

PRIMARY = "primary"
"""The word in ``nodePortAddresses`` for the node's own addresses."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DEVICE = re.compile(r"[^\s/:+!\"\\]{1,15}")
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


def _socket_address(default_port: int) -> object:
    def validate(value: object) -> SocketAddress:
        with suppress(ValueError):
            return SocketAddress.parse(value if isinstance(value, str) else "", default_port)
        allowed = f"write it as 0.0.0.0:{default_port}"
        raise refused(f"must be an address and port, is {describe(value)}", allowed=allowed)

    return BeforeValidator(validate, json_schema_input_type=str)


def _networks(value: object) -> tuple[IPNetwork, ...]:
    with suppress(ValueError):
        if isinstance(value, str):
            return tuple(ip_network(text.strip(), strict=False) for text in value.split(",") if value)
    allowed = "write it as 10.244.0.0/16, or as one of each family, separated by a comma"
    raise refused(f"must be networks, is {describe(value)}", allowed=allowed)


def _network_or_primary(value: object) -> IPNetwork | str:
    text = value if isinstance(value, str) else ""
    if text == PRIMARY:
        return PRIMARY
    with suppress(ValueError):
        return ip_network(text, strict=False)
    allowed = f"allowed: networks such as 172.18.0.0/16, or {PRIMARY}"
    raise refused(f"must be a network, is {describe(value)}", allowed=allowed, word=text, known=[PRIMARY])


def _mode(value: object) -> str:
    if value in ("", "iptables"):
        return "iptables"
    if isinstance(value, str) and value in tuple(Mode):
        return value
    word = value if isinstance(value, str) else ""
    allowed = f"allowed: {listed(RUNNING_MODES)}"
    raise refused(f"the mode {shown(value)} is unknown", allowed=allowed, word=word, known=RUNNING_MODES)


def _device(value: object) -> str:
    if not isinstance(value, str) or not (value == "" or _DEVICE.fullmatch(value)):
        raise refused(f"must be a device's name, is {describe(value)}", allowed="allowed: 15 characters without spaces")
    return value


UNSET_IF_EMPTY = BeforeValidator(_absent_if_empty)
Detection = Annotated[DetectLocalMode, BeforeValidator(word_of(DetectLocalMode))]
Duration = Annotated[float, BeforeValidator(_duration, json_schema_input_type=str)]
Networks = Annotated[tuple[IPNetwork, ...], BeforeValidator(_networks, json_schema_input_type=str)]
NetworkOrPrimary = Annotated[IPNetwork | str, BeforeValidator(_network_or_primary)]
Device = Annotated[str, BeforeValidator(_device)]
Healthz = Annotated[InstanceOf[SocketAddress], _socket_address(10256)]
Metrics = Annotated[InstanceOf[SocketAddress], _socket_address(10249)]


class NftablesShape(ManifestShape):
    """``nftables``: keys of this mode."""

    masquerade_bit: Annotated[int, Between(0, 31)] | None = Field(
        default=None, description="The bit of the packet mark that requests masquerading; 14 by default."
    )
    masquerade_all: bool | None = Field(default=None, description="Masquerade all traffic to cluster IPs.")
    sync_period: Duration | None = Field(
        default=None, description="How often the proxy checks its rules; 30s by default."
    )
    min_sync_period: Duration | None = Field(
        default=None,
        description="The least time between two syncs; 0 means the default, 10ms here and 1s upstream.",
    )


class IptablesShape(NftablesShape):
    """``iptables``: the keys of nftables and one more."""

    localhost_node_ports: bool | None = Field(
        default=None, description="Serve IPv4 node ports on 127.0.0.0/8 too; true by default."
    )


class ConntrackShape(ManifestShape):
    """``conntrack``: sysctls that the proxy writes when it starts."""

    max_per_core: Ignored = Field(default=None, description="No network namespace can set its own nf_conntrack_max.")
    min: Ignored = Field(default=None, description="No network namespace can set its own nf_conntrack_max.")
    tcp_established_timeout: Duration | None = Field(
        default=None, description="24h by default; 0s leaves the sysctl unchanged."
    )
    tcp_close_wait_timeout: Duration | None = Field(
        default=None, description="1h by default; 0s leaves the sysctl unchanged."
    )
    tcp_be_liberal: bool | None = Field(default=None, description="Accept packets out of window, not INVALID.")
    udp_timeout: Duration | None = Field(default=None, description="Unchanged by default.")
    udp_stream_timeout: Duration | None = Field(default=None, description="Unchanged by default.")


class DetectLocalShape(ManifestShape):
    """``detectLocal``: the devices, for the two modes that detect by device."""

    bridge_interface: Device | None = Field(
        default=None, description="The bridge, for detectLocalMode BridgeInterface."
    )
    interface_name_prefix: Device | None = Field(
        default=None, description="How device names begin, for detectLocalMode InterfaceNamePrefix."
    )


class KubeProxyShape(ManifestShape):
    """The document."""

    api_version: str = Field(description="It is kubeproxy.config.k8s.io/v1alpha1.")
    kind: str = Field(description="It is KubeProxyConfiguration.")
    mode: Annotated[str, BeforeValidator(_mode)] | None = Field(default=None, description="The proxy mode.")
    detect_local_mode: Annotated[Detection | None, UNSET_IF_EMPTY] = Field(
        default=None, description="How the proxy recognises traffic of local pods; ClusterCIDR by default."
    )
    detect_local: DetectLocalShape | None = Field(default=None, description="Devices for detectLocalMode.")
    cluster_cidr: Networks | None = Field(
        default=None,
        alias="clusterCIDR",
        description="The pod networks, one per family; without the key the lab's own, with empty text none.",
    )
    node_port_addresses: list[NetworkOrPrimary] | None = Field(
        default=None, description="The addresses that serve node ports: networks, or primary alone; all by default."
    )
    iptables: IptablesShape | None = Field(default=None, description="Keys of mode iptables.")
    nftables: NftablesShape | None = Field(default=None, description="Keys of mode nftables.")
    feature_gates: dict[str, bool] | None = Field(
        default=None,
        description="Feature gates of the real kube-proxy; embedded engines refuse those that they do not have.",
    )
    conntrack: ConntrackShape | None = Field(default=None, description="Sysctls of connection tracking.")
    bind_address: Annotated[Address | None, UNSET_IF_EMPTY] = Field(
        default=None,
        description="The primary address of every node. With 0.0.0.0 or :: each node keeps its own, and with :: the "
        "next two keys default to IPv6 addresses.",
    )
    healthz_bind_address: Annotated[Healthz | None, UNSET_IF_EMPTY] = Field(
        default=None, description="0.0.0.0:10256 by default; 0.0.0.0 and [::] both mean every address of both families."
    )
    metrics_bind_address: Annotated[Metrics | None, UNSET_IF_EMPTY] = Field(
        default=None,
        description="127.0.0.1:10249 by default; 0.0.0.0 and [::] both mean every address of both families.",
    )
    metadata: Ignored = Field(default=None, description="Not used.")
    client_connection: Ignored = Field(default=None, description="The lab has its own API server.")
    logging: Ignored = Field(default=None, description="It changes no rule; the lab does not pass it on.")
    hostname_override: Ignored = Field(default=None, description="The lab names its nodes itself.")
    bind_address_hard_fail: Ignored = Field(
        default=None, description="It changes no rule; the lab does not pass it on."
    )
    enable_profiling: Ignored = Field(default=None, description="It changes no rule; the lab does not pass it on.")
    show_hidden_metrics_for_version: Ignored = Field(
        default=None, description="It changes no rule; the lab does not pass it on."
    )
    ipvs: Ignored = Field(default=None, description="For mode ipvs.")
    winkernel: Ignored = Field(default=None, description="For mode kernelspace.")
    oom_score_adj: Ignored = Field(default=None, description="It changes no rule; the lab does not pass it on.")
    config_sync_period: Ignored = Field(default=None, description="The proxy never polls the lab's store.")
    port_range: Ignored = Field(default=None, description="For mode userspace.")
    windows_run_as_service: Ignored = Field(default=None, description="For Windows.")
