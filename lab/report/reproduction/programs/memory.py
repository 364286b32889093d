"""Let connection tracking remember what it remembered when the probe was sent.

Owns: making one entry, with its translations, and taking one away, by ctnetlink.
Must not: need anything but python3 and its standard library, or choose a namespace.

The attributes are those of linux/netfilter/nfnetlink_conntrack.h. An entry of TCP or SCTP that is made so has no state
yet: like one whose first packet nobody has answered, it takes that packet again.
"""

import errno
import ipaddress
import os
import socket
import struct

NETLINK_NETFILTER, CT_NEW, CREATE = 12, 1 << 8, 0x1 | 0x4 | 0x200 | 0x400  # request, acknowledge, exclusively, create
ORIGINAL, REPLY, TIMEOUT, NAT_SOURCE, NAT_DESTINATION = 1, 2, 7, 6, 13
NESTED = 0x8000
CT_DELETE, REQUEST = 1 << 8 | 2, 0x1 | 0x4
SECONDS = 600


def remember(entry):
    """Make the entry in the namespace that this process is in. Raises OSError."""
    source, asked, answers, to = (
        (ipaddress.ip_address(address), port)
        for address, port in map(entry.get, ("from", "to", "answers", "answers to"))
    )
    number = entry["protocol"]
    body = nested(ORIGINAL, *ends(number, source, asked)) + nested(REPLY, *ends(number, asked, source))
    body += attribute(TIMEOUT, struct.pack("!I", SECONDS))
    if answers != asked:
        body += translation(NAT_DESTINATION, *answers)
    if to != source:
        body += translation(NAT_SOURCE, *to)
    error = told(source[0].version, CT_NEW, CREATE, body)
    if error:
        raise OSError(error, f"a conntrack entry cannot be made: {os.strerror(error)}")


def forget(entry):
    """Take the entry of a flow away, where the namespace has one. Raises OSError."""
    source, asked = ((ipaddress.ip_address(address), port) for address, port in map(entry.get, ("from", "to")))
    error = told(source[0].version, CT_DELETE, REQUEST, nested(ORIGINAL, *ends(entry["protocol"], source, asked)))
    if error not in (0, errno.ENOENT):
        raise OSError(error, f"a conntrack entry cannot be deleted: {os.strerror(error)}")


def told(version, what, flags, body):
    """Tell the kernel, and return what is wrong with it; 0 if nothing is."""
    body = struct.pack("=BBH", socket.AF_INET if version == 4 else socket.AF_INET6, 0, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as sock:
        sock.send(struct.pack("=IHHII", 16 + len(body), what, flags, 1, 0) + body)
        return -struct.unpack_from("=i", sock.recv(65536), 16)[0]


def ends(number, source, destination):
    """The parts of a tuple of a protocol that has ports."""
    at = 1 if source[0].version == 4 else 3
    yield nested(1, attribute(at, source[0].packed), attribute(at + 1, destination[0].packed))
    ports = [attribute(kind, struct.pack("!H", end[1])) for kind, end in ((2, source), (3, destination))]
    yield nested(2, attribute(1, bytes([number])), *ports)


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
