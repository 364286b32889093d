"""Netlink attributes as bytes.

Owns: the packing of a netlink attribute (``struct nlattr``: length and type, two bytes each, then the value, padded to
four bytes), and the few kinds of value that route netlink asks for.
Must not: know a message; ``kernel.requests`` does.

Six lines of packing instead of a library's message classes, because of what those cost here: pyroute2 encodes the 180
messages of a small lab in 30 ms, twice what the kernel needs to carry them out, and importing it takes half of a lab
process's start. ``tests/unit/kernel`` decodes every message with pyroute2 and so holds it to a second opinion.
"""

import struct
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.framing import ATTRIBUTE

__all__ = ["address", "integer", "long", "mac", "nested", "raw", "short", "text", "tiny"]

_NLA_F_NESTED: Final = 0x8000  # include/uapi/linux/netlink.h


def raw(kind: int, value: bytes) -> bytes:
    """An attribute with a value that is packed already."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def tiny(kind: int, value: int) -> bytes:
    """An 8-bit number."""
    return raw(kind, value.to_bytes(1, "little"))


def short(kind: int, value: int) -> bytes:
    """A 16-bit number in network byte order, as ports have it."""
    return raw(kind, value.to_bytes(2, "big"))


def integer(kind: int, value: int) -> bytes:
    """A 32-bit number in host byte order."""
    return raw(kind, struct.pack("=I", value))


def long(kind: int, value: int) -> bytes:
    """A 64-bit number in host byte order."""
    return raw(kind, struct.pack("=Q", value))


def text(kind: int, value: str) -> bytes:
    """A text with its terminating zero."""
    return raw(kind, value.encode("ascii") + b"\0")


def mac(kind: int, value: str) -> bytes:
    """A link-layer address, written ``02:00:00:00:00:01``."""
    return raw(kind, bytes.fromhex(value.replace(":", "")))


def address(kind: int, value: IPAddress) -> bytes:
    """An IP address: 4 or 16 bytes."""
    return raw(kind, value.packed)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Attributes within an attribute."""
    return raw(kind | _NLA_F_NESTED, b"".join(attributes))
