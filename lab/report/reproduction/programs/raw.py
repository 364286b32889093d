"""Send and hear as a program of a node does, by raw sockets: SCTP, echo requests, and SYNs that nobody accepts.

Owns: the raw sockets of one namespace.
Must not: need anything but python3 and its standard library, or choose a namespace.

A raw socket hears a packet behind all rules, as a program would get it (raw(7)).
"""

import ipaddress
import socket
import struct

NUMBERS = {"TCP": (6, 6), "SCTP": (132, 132), "ICMP": (1, 58)}
ICMP = (1, 58)


class Mouth:
    """Sends from one address; ``ears`` are all sockets that hear."""

    def __init__(self, protocol, address):
        self.address = ipaddress.ip_address(address)
        six = self.address.version == 6
        self.family = socket.AF_INET6 if six else socket.AF_INET
        self.ears = [self.open(number) for number in dict.fromkeys((NUMBERS[protocol][six], ICMP[six]))]

    def open(self, number):
        """A raw socket that hears what comes to the address."""
        sock = socket.socket(self.family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, number)
        sock.bind((str(self.address), 0))
        return sock

    def send(self, packet):
        """Send the body of a packet; the kernel writes its header, and cuts it where it is too long."""
        self.ears[0].sendto(packet.body, (str(packet.destination), 0))

    def read(self, sock):
        """What waits at an ear, as IP packets: IPv6's come without their header."""
        while True:
            try:
                data, peer = sock.recvfrom(65535)
            except BlockingIOError:
                return
            if self.family == socket.AF_INET6:
                head = struct.pack("!IHBB", 6 << 28, len(data), sock.proto, 64)
                data = head + ipaddress.ip_address(peer[0].partition("%")[0]).packed + self.address.packed + data
            yield data


def echo_request(version, identifier, words):
    """An echo request; of IPv6 the kernel writes the checksum."""
    body = struct.pack("!BBHHH", 128 if version == 6 else 8, 0, 0, identifier, 1) + words
    if version == 6:
        return body
    total = sum(struct.unpack(f"!{len(body) // 2}H", body[: len(body) // 2 * 2])) + (
        body[-1] << 8 if len(body) % 2 else 0
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + struct.pack("!H", 0xFFFF - total) + body[4:]
