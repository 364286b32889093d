"""Packs netlink attributes (``struct nlattr``: length and type, two bytes each, then the value, padded to 4 bytes).

They are those of nf_tables, NFNETLINK_LOG and nfacct, for which pyroute2 has no messages, or none that write.
"""

from typing import Final

from proxylab.kernel.netfilter.nfnetlink import ATTRIBUTE

_NLA_F_NESTED: Final = 0x8000  # include/uapi/linux/netlink.h


def raw(kind: int, value: bytes) -> bytes:
    """An attribute with a packed value."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def short(kind: int, value: int) -> bytes:
    """A 16-bit number in network byte order."""
    return raw(kind, value.to_bytes(2, "big"))


def number(kind: int, value: int) -> bytes:
    """A 32-bit number in network byte order, as nf_tables encodes all numbers."""
    return raw(kind, value.to_bytes(4, "big"))


def text(kind: int, value: str) -> bytes:
    """A text with its terminating zero."""
    return raw(kind, value.encode("ascii") + b"\0")


def nested(kind: int, *attributes: bytes) -> bytes:
    """Attributes within an attribute."""
    return raw(kind | _NLA_F_NESTED, b"".join(attributes))
