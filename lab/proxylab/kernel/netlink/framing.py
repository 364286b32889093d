"""Parsing of netlink framing: messages in the bytes of one recv(2), and attributes in a message.

The structures are ``struct nlmsghdr`` and ``struct nlattr`` (include/uapi/linux/netlink.h), the same for every netlink
protocol. ``kernel.netlink.attributes`` packs attributes.
"""

import errno
import struct
from collections.abc import Iterator
from typing import Final

__all__ = ["ATTRIBUTE", "HEADER", "attributes", "messages", "nested"]

HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_TYPE_BITS: Final = 0x3FFF  # a type without NLA_F_NESTED and NLA_F_NET_BYTEORDER


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Each message as type, flags, sequence number and body. Raises ``OSError`` (EBADMSG) for an impossible length."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size:
            raise OSError(errno.EBADMSG, "a netlink message is shorter than its header")
        yield kind, flags, sequence, data[at + HEADER.size : at + length]
        at += length + (-length & 3)


def attributes(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """The attributes from ``at`` on, each with its content, up to the first impossible length."""
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & _TYPE_BITS, data[at + ATTRIBUTE.size : at + length]
        at += length + (-length & 3)


def nested(data: bytes, at: int = 0) -> dict[int, bytes]:
    """The attributes from ``at`` on, by their type."""
    return dict(attributes(data, at))
