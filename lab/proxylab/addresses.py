"""The lab's types for addresses, IP families and the protocols above IP.

They are unions over IPv4 and IPv6 of the standard library's ``ipaddress`` types, and enums.
"""

import re
from abc import ABCMeta
from enum import StrEnum
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
)
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    IPAddress = IPv4Address | IPv6Address
    IPInterface = IPv4Interface | IPv6Interface
    IPNetwork = IPv4Network | IPv6Network
else:

    def _either(name: str, four: type, six: type) -> type:
        """One class for both: msgspec refuses a union of two classes that it does not know."""
        made = ABCMeta(name, (), {})
        made.register(four)
        made.register(six)
        return made

    IPAddress = _either("IPAddress", IPv4Address, IPv6Address)
    IPInterface = _either("IPInterface", IPv4Interface, IPv6Interface)
    IPNetwork = _either("IPNetwork", IPv4Network, IPv6Network)

_IPV4_TEXT: Final = re.compile(r"[0-9]+(\.[0-9]+){3}(/[0-9]+)?")
_LEADING_ZEROS: Final = re.compile(r"\b0+(?=[0-9])")


@lru_cache(maxsize=4096)
def unpacked(packed: bytes) -> IPAddress:
    """An address by its four or sixteen bytes, cached: making one costs more than reading its packet."""
    return ip_address(packed)


def without_leading_zeros(text: str) -> str:
    """An IPv4 address or network of an old Kubernetes object in its decimal meaning; any other text as it is.

    Kubernetes and its proxies read ``010.001.002.003`` as 10.1.2.3 (``ParseIPSloppy`` of k8s.io/utils/net).
    """
    return _LEADING_ZEROS.sub("", text) if _IPV4_TEXT.fullmatch(text.strip()) else text


class Family(StrEnum):
    """An IP family, spelled as Kubernetes spells it (``spec.ipFamilies``)."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @classmethod
    def of(cls, address: IPAddress | IPNetwork | IPInterface) -> "Family":
        """The family of one address, interface or network."""
        return cls.IPV4 if address.version == 4 else cls.IPV6

    @property
    def loopback(self) -> IPAddress:
        return IPv4Address("127.0.0.1") if self is Family.IPV4 else IPv6Address("::1")


class Protocol(StrEnum):
    """A transport protocol, spelled as Kubernetes spells it (``ServicePort.protocol``)."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"

    @property
    def number(self) -> int:
        """The number in the IP header (IANA protocol numbers)."""
        return {"TCP": 6, "UDP": 17, "SCTP": 132}[self.value]


class Transport(StrEnum):
    """What a probe sends above IP: one of Kubernetes' protocols, or ICMP echo requests."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"
    ICMP = "ICMP"

    def number(self, version: int) -> int:
        """The number in the IP header (IANA protocol numbers); ICMPv6 has its own."""
        return (1 if version == 4 else 58) if self is Transport.ICMP else Protocol(self.value).number

    @property
    def served(self) -> Protocol | None:
        """The protocol of its listeners; ``None`` for echo requests, which every stack answers."""
        return None if self is Transport.ICMP else Protocol(self.value)


def may_overlap(one: tuple[str, IPNetwork], other: tuple[str, IPNetwork]) -> bool:
    """Whether two networks, each with its key, are those of pods within the upper half of their nodes' own network.

    The networks of clouds give pods such addresses. Nodes and hosts get theirs from the lower half.
    """
    networks = dict((one, other))
    pods, nodes = networks.get("podCIDR"), networks.get("nodeCIDR")
    if pods is None or nodes is None or pods.version != nodes.version or nodes.prefixlen == nodes.max_prefixlen:
        return False
    first, last, middle = int(pods[0]), int(pods[-1]), int(nodes[0]) + nodes.num_addresses // 2
    return middle <= first and last <= int(nodes[-1])


def with_port(address: IPAddress, port: int) -> str:
    """An address and port as RFC 3986 and every tool write them.

    Example:
        >>> with_port(IPv6Address("fd00::1"), 80)
        '[fd00::1]:80'
    """
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
