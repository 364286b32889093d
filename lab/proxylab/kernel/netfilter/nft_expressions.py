"""Builds expressions, of which nf_tables' rules consist (include/uapi/linux/netfilter/nf_tables.h).

The kernel runs the expressions of a rule in order. A ``match_…`` loads a part of the packet into a register and
compares it; the rule ends for a packet that differs. ``kernel.netfilter.nft_tables`` puts expressions into rules.

pyroute2 0.9 has classes for them, but encodes the group of a ``log`` as 32 bits, of which the kernel reads 16, and the
result of a ``fib`` as a set of bits instead of a number.
"""

import struct
from typing import Final

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import NFPROTO

Expressions = tuple[bytes, ...]

NETWORK_HEADER: Final = 1  # NFT_PAYLOAD_NETWORK_HEADER
TRANSPORT_HEADER: Final = 2  # NFT_PAYLOAD_TRANSPORT_HEADER

_VERDICT_REGISTER, _REGISTER = 0, 1

# Attributes (NFTA_*) of an expression and of its data.
_LIST_ELEMENT: Final = 1
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_DATA_VALUE, _DATA_VERDICT = 1, 2
_VERDICT_CODE: Final = 1

# Attributes of each kind of expression, and their values.
_COMPARE_REGISTER, _COMPARE_OPERATION, _COMPARE_DATA = 1, 2, 3
_EQUAL: Final = 0
_META_INTO, _META_KEY, _META_FROM = 1, 2, 3
_META_TRACE, _META_FAMILY, _META_PROTOCOL = 12, 15, 16
_PAYLOAD_INTO, _PAYLOAD_HEADER, _PAYLOAD_OFFSET, _PAYLOAD_LENGTH = 1, 2, 3, 4
_IMMEDIATE_INTO, _IMMEDIATE_DATA = 1, 2
_CONNTRACK_INTO, _CONNTRACK_KEY = 1, 2
_CONNTRACK_STATE: Final = 0
_STATE_ESTABLISHED, _STATE_NEW = 2, 8
_BITS_FROM, _BITS_INTO, _BITS_LENGTH, _BITS_MASK, _BITS_XOR = 1, 2, 3, 4, 5
_FIB_INTO, _FIB_RESULT, _FIB_FLAGS = 1, 2, 3
_FIB_ADDRESS_TYPE: Final = 3
_FIB_OF_DESTINATION: Final = 2
_LOG_GROUP, _LOG_PREFIX = 1, 2

_NF_DROP: Final = 0
_RTN_LOCAL: Final = 2  # include/uapi/linux/rtnetlink.h


def _expression(name: str, *attributes: bytes) -> bytes:
    return nla.nested(_LIST_ELEMENT, nla.text(_EXPRESSION_NAME, name), nla.nested(_EXPRESSION_DATA, *attributes))


def _load_meta(key: int) -> bytes:
    return _expression("meta", nla.number(_META_INTO, _REGISTER), nla.number(_META_KEY, key))


def _compare(value: bytes) -> bytes:
    """End the rule unless the register equals ``value``."""
    return _expression(
        "cmp",
        nla.number(_COMPARE_REGISTER, _REGISTER),
        nla.number(_COMPARE_OPERATION, _EQUAL),
        nla.nested(_COMPARE_DATA, nla.raw(_DATA_VALUE, value)),
    )


def _keep_bits(bits: bytes) -> bytes:
    """Keep only ``bits`` of the register."""
    return _expression(
        "bitwise",
        nla.number(_BITS_FROM, _REGISTER),
        nla.number(_BITS_INTO, _REGISTER),
        nla.number(_BITS_LENGTH, len(bits)),
        nla.nested(_BITS_MASK, nla.raw(_DATA_VALUE, bits)),
        nla.nested(_BITS_XOR, nla.raw(_DATA_VALUE, bytes(len(bits)))),
    )


def match_family(family: Family) -> Expressions:
    """Match packets of one family."""
    return _load_meta(_META_FAMILY), _compare(bytes([NFPROTO[family]]))


def match_protocol(protocol: int) -> Expressions:
    """Match packets of one transport protocol (IANA's number)."""
    return _load_meta(_META_PROTOCOL), _compare(bytes([protocol]))


def match_bytes(header: int, offset: int, value: bytes) -> Expressions:
    """Match packets with ``value`` at that offset of ``NETWORK_HEADER`` or ``TRANSPORT_HEADER``."""
    load = _expression(
        "payload",
        nla.number(_PAYLOAD_INTO, _REGISTER),
        nla.number(_PAYLOAD_HEADER, header),
        nla.number(_PAYLOAD_OFFSET, offset),
        nla.number(_PAYLOAD_LENGTH, len(value)),
    )
    return load, _compare(value)


def log(group: int, prefix: str = "") -> bytes:
    """Log the packet to a group of NFNETLINK_LOG."""
    return _expression("log", nla.short(_LOG_GROUP, group), nla.text(_LOG_PREFIX, prefix) if prefix else b"")


# Connection tracking's state and the type of an address are in the machine's byte order.
_NEW: Final = struct.pack("=I", _STATE_NEW)
_LOCAL: Final = struct.pack("=I", _RTN_LOCAL)

_FOLLOWED: Final = struct.pack("=I", _STATE_NEW | _STATE_ESTABLISHED)
_LOAD_STATE: Final = _expression(
    "ct", nla.number(_CONNTRACK_INTO, _REGISTER), nla.number(_CONNTRACK_KEY, _CONNTRACK_STATE)
)

MATCH_NEW_FLOW: Final[Expressions] = (_LOAD_STATE, _keep_bits(_NEW), _compare(_NEW))
"""Match a packet that connection tracking has not seen before: ``ct state new``."""

MATCH_SENT_HERE: Final[Expressions] = (_LOAD_STATE, _keep_bits(_FOLLOWED), _compare(bytes(len(_FOLLOWED))))
"""In OUTPUT, before connection tracking (-200): match what the namespace itself sends: ``ct state != new,established``.

IPVS leads a packet that it has translated through OUTPUT, and connection tracking knows that packet from PREROUTING. An
answer of REJECT is ``related``.
"""

MATCH_OWN_ADDRESS: Final[Expressions] = (
    _expression(
        "fib",
        nla.number(_FIB_INTO, _REGISTER),
        nla.number(_FIB_RESULT, _FIB_ADDRESS_TYPE),
        nla.number(_FIB_FLAGS, _FIB_OF_DESTINATION),
    ),
    _compare(_LOCAL),
)
"""Match a packet to an address of the namespace: ``fib daddr type local``."""

TRACE: Final[Expressions] = (
    _expression(
        "immediate",
        nla.number(_IMMEDIATE_INTO, _REGISTER),
        nla.nested(_IMMEDIATE_DATA, nla.raw(_DATA_VALUE, b"\1")),
    ),
    _expression("meta", nla.number(_META_KEY, _META_TRACE), nla.number(_META_FROM, _REGISTER)),
)
"""Trace the packet through all later rules: ``meta nftrace set 1``."""

DROP: Final = _expression(
    "immediate",
    nla.number(_IMMEDIATE_INTO, _VERDICT_REGISTER),
    nla.nested(_IMMEDIATE_DATA, nla.nested(_DATA_VERDICT, nla.number(_VERDICT_CODE, _NF_DROP))),
)
"""Drop the packet."""
