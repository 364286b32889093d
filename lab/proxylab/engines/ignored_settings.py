"""Keys of a KubeProxyConfiguration that a proxy of a mode does not read, though it accepts them."""

from collections.abc import Iterator
from typing import Final

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.scenario.words import Mode

__all__ = ["ignored_settings"]

_IPTABLES: Final = frozenset((Mode.IPTABLES,))
_OF_MASQUERADING: Final = frozenset((Mode.IPTABLES, Mode.IPVS))
_READ_BY: Final = {
    ("localhost_node_ports", "iptables.localhostNodePorts"): _IPTABLES,
    ("masquerade_all", "iptables.masqueradeAll"): _OF_MASQUERADING,
    ("masquerade_bit", "iptables.masqueradeBit"): _OF_MASQUERADING,
    ("nftables", "nftables"): frozenset((Mode.NFTABLES,)),
    ("ipvs", "ipvs"): frozenset((Mode.IPVS,)),
    ("udp_idle_timeout", "udpIdleTimeout"): frozenset((Mode.USERSPACE,)),
    ("node_port_addresses", "nodePortAddresses"): frozenset(Mode) - {Mode.USERSPACE},
    ("node_port_primary", "nodePortAddresses"): frozenset(Mode) - {Mode.USERSPACE},
}
"""The modes that read a field, by its name and its key."""

_DEFAULT: Final = ProxyConfiguration()


def ignored_settings(mode: str, configuration: ProxyConfiguration | None) -> Iterator[str]:
    """The keys with another value than the default that no proxy of the mode reads."""
    for (name, key), modes in _READ_BY.items() if configuration is not None else ():
        if mode not in modes and getattr(configuration, name) != getattr(_DEFAULT, name):
            yield key
