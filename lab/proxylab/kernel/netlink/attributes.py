"""Packs netlink attributes (``struct nlattr``: length and type, two bytes each, then the value, padded to 4 bytes).

The module packs by hand for speed: pyroute2 encodes the 180 messages of a small lab in 30 ms, twice the time that the
kernel needs to execute them, and its import takes half of a lab process's start. ``tests/unit/kernel`` decodes every
message with pyroute2 as a second opinion. ``kernel.netlink.requests`` builds the messages.
"""

import struct
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.framing import ATTRIBUTE

__all__ = ["address", "integer", "long", "mac", "nested", "raw", "short", "text", "tiny"]

_NLA_F_NESTED: Final = 0x8000  # include/uapi/linux/netlink.h


def raw(kind: int, value: bytes) -> bytes:
    """An attribute with a packed value."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def tiny(kind: int, value: int) -> bytes:
    """An 8-bit number."""
    return raw(kind, value.to_bytes(1, "little"))


def short(kind: int, value: int) -> bytes:
    """A 16-bit number in network byte order, such as a port."""
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
