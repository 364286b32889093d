"""Let connection tracking remember what it remembered when the probe was sent.

Owns: making one entry of UDP, with its translations, by ctnetlink.
Must not: need anything but python3 and its standard library, or choose a namespace.

The attributes are those of linux/netfilter/nfnetlink_conntrack.h.
"""

import ipaddress
import os
import socket
import struct

NETLINK_NETFILTER, CT_NEW, CREATE = 12, 1 << 8, 0x1 | 0x4 | 0x200 | 0x400  # request, acknowledge, exclusively, create
ORIGINAL, REPLY, TIMEOUT, NAT_SOURCE, NAT_DESTINATION = 1, 2, 7, 6, 13
NESTED = 0x8000
UDP, SECONDS = 17, 600


def remember(entry):
    """Make the entry in the namespace that this process is in. Raises OSError."""
    source, asked, answers, to = (
        (ipaddress.ip_address(address), port)
        for address, port in map(entry.get, ("from", "to", "answers", "answers to"))
    )
    body = struct.pack("=BBH", socket.AF_INET if source[0].version == 4 else socket.AF_INET6, 0, 0)
    body += nested(ORIGINAL, *ends(source, asked)) + nested(REPLY, *ends(asked, source))
    body += attribute(TIMEOUT, struct.pack("!I", SECONDS))
    if answers != asked:
        body += translation(NAT_DESTINATION, *answers)
    if to != source:
        body += translation(NAT_SOURCE, *to)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as sock:
        sock.send(struct.pack("=IHHII", 16 + len(body), CT_NEW, CREATE, 1, 0) + body)
        (error,) = struct.unpack_from("=i", sock.recv(65536), 16)
    if error:
        raise OSError(-error, f"a conntrack entry cannot be made: {os.strerror(-error)}")


def ends(source, destination):
    """The parts of a tuple of UDP."""
    at = 1 if source[0].version == 4 else 3
    yield nested(1, attribute(at, source[0].packed), attribute(at + 1, destination[0].packed))
    ports = [attribute(number, struct.pack("!H", end[1])) for number, end in ((2, source), (3, destination))]
    yield nested(2, attribute(1, bytes([UDP])), *ports)


def translation(kind, address, port):
    """To one address and port."""
    at = (1, 2) if address.version == 4 else (4, 5)
    ports = nested(3, attribute(1, struct.pack("!H", port)), attribute(2, struct.pack("!H", port)))
    return nested(kind, *(attribute(number, address.packed) for number in at), ports)


def nested(kind, *parts):
    """An attribute of attributes."""
    return attribute(kind | NESTED, b"".join(parts))


def attribute(kind, value):
    """An attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
