"""The names of kube-proxy's chains: the fixed ones, and those of services and endpoints.

A chain name may have 28 characters (``XT_EXTENSION_MAXNAMELEN`` in the kernel's x_tables.h, less the terminator): too
few for a Service's name, so names carry 16 characters of a hash.
"""

from enum import StrEnum
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple


class Table(StrEnum):
    """The tables that kube-proxy uses, in the order in which they are loaded."""

    MANGLE = "mangle"
    FILTER = "filter"
    NAT = "nat"


class Chain(NamedTuple):
    """A chain of a table."""

    table: Table
    name: str


# The built-in chains that jump to ours.
FILTER_INPUT = Chain(Table.FILTER, "INPUT")
FILTER_FORWARD = Chain(Table.FILTER, "FORWARD")
FILTER_OUTPUT = Chain(Table.FILTER, "OUTPUT")
NAT_PREROUTING = Chain(Table.NAT, "PREROUTING")
NAT_OUTPUT = Chain(Table.NAT, "OUTPUT")
NAT_POSTROUTING = Chain(Table.NAT, "POSTROUTING")

# Translation. Only the first packet of a connection traverses the nat table; conntrack translates the rest.
SERVICES = Chain(Table.NAT, "KUBE-SERVICES")
NODE_PORTS = Chain(Table.NAT, "KUBE-NODEPORTS")
POSTROUTING = Chain(Table.NAT, "KUBE-POSTROUTING")
MARK_MASQ = Chain(Table.NAT, "KUBE-MARK-MASQ")

# Refusals and permissions. The kernel allows no REJECT or DROP in the nat table.
REJECT_INTERNAL = Chain(Table.FILTER, "KUBE-SERVICES")
REJECT_EXTERNAL = Chain(Table.FILTER, "KUBE-EXTERNAL-SERVICES")
ACCEPT_HEALTH_CHECKS = Chain(Table.FILTER, "KUBE-NODEPORTS")
FORWARD = Chain(Table.FILTER, "KUBE-FORWARD")
PROXY_FIREWALL = Chain(Table.FILTER, "KUBE-PROXY-FIREWALL")
FIREWALL = Chain(Table.FILTER, "KUBE-FIREWALL")
"""Shared with the kubelet, which writes the same rule into it."""

# Empty chains: when they vanish, another program has flushed the tables.
CANARIES = tuple(Chain(table, "KUBE-PROXY-CANARY") for table in (Table.MANGLE, Table.NAT, Table.FILTER))

SERVICE_CHAIN_PREFIXES = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-")
"""Prefixes of service chains, which belong to one service port, in the nat table. Releases up to 1.23 had KUBE-XLB-."""


class PortChains(NamedTuple):
    """The names of one service port's chains, needed or not.

    Attributes:
        cluster: ``KUBE-SVC-``: chooses among the endpoints of policy Cluster.
        local: ``KUBE-SVL-``: chooses among the endpoints of policy Local.
        external: ``KUBE-EXT-``: takes traffic to node ports, external and load-balancer IPs.
        firewall: ``KUBE-FW-``: lets only the source ranges of a load balancer pass.
    """

    cluster: str
    local: str
    external: str
    firewall: str


def port_chains(identity: str) -> PortChains:
    """The chains of a service port; ``identity`` is its name directly followed by the protocol.

    >>> port_chains("default/echotcp").cluster
    'KUBE-SVC-HV6DMF63W6MGLRDE'
    """
    suffix = _hashed(identity)
    return PortChains("KUBE-SVC-" + suffix, "KUBE-SVL-" + suffix, "KUBE-EXT-" + suffix, "KUBE-FW-" + suffix)


def endpoint_chain(identity: str, endpoint: str) -> str:
    """The chain of one endpoint (``ip:port``) of a service port.

    >>> endpoint_chain("default/echotcp", "10.42.0.10:8080")
    'KUBE-SEP-QKHRHCLFVYAPNTMT'
    """
    return "KUBE-SEP-" + _hashed(identity + endpoint)


_BASE32: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_HALVES: Final = Struct(">QH")
_PAIRS: Final = tuple(first + second for first in _BASE32 for second in _BASE32)


def _hashed(identity: str) -> str:
    """The first sixteen characters of the hash's base32 (RFC 4648): five bits to a character, so ten bytes are enough.

    It makes two characters at a time, since base64.b32encode() takes three times as long.
    """
    first, second = _HALVES.unpack_from(sha256(identity.encode()).digest())
    a, b, c, d = first >> 54, first >> 44 & 1023, first >> 34 & 1023, first >> 24 & 1023
    e, f, g, h = first >> 14 & 1023, first >> 4 & 1023, (first & 15) << 6 | second >> 10, second & 1023
    pairs = _PAIRS
    return f"{pairs[a]}{pairs[b]}{pairs[c]}{pairs[d]}{pairs[e]}{pairs[f]}{pairs[g]}{pairs[h]}"
