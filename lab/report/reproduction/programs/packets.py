"""What the packets of a probe look like, and which flow of it each belongs to.

Owns: tokens, addresses as one writes them, and reading Ethernet's payload.
Must not: need anything but python3 and its standard library, or touch sockets.
"""

import ipaddress
import struct

PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
ICMP_ERRORS = {4: (3, 11, 12), 6: (1, 3, 4)}
UNKNOWN_PROTOCOL = (3, 2), (4, 1)  # of ICMP and of ICMPv6
ECHOES = {8: "request", 0: "reply", 128: "request", 129: "reply"}
SYN, RST, ACK = 2, 4, 16
FRAGMENT = 44  # the extension header of IPv6 (RFC 8200, section 4.5)


def token(word, flow):
    """What a request or an answer begins with: 48 bytes, of which the last eight are the number of the flow."""
    return f"proxylab {word} {0:016x} {flow:016x}".encode()


def end(address, port):
    """An address with its port, as one writes it."""
    if not port:
        return str(address)
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"


class Packet:
    """One IP packet: addresses, ports, and what tells its flow. Raises ValueError for what is none."""

    def __init__(self, data):
        self.version = data[0] >> 4 if data else 0
        if self.version == 4 and len(data) >= 20:
            self.protocol, head = data[9], (data[0] & 15) * 4
            addresses = data[12:16], data[16:20]
        elif self.version == 6 and len(data) >= 40:
            self.protocol, head = data[6], 40
            if self.protocol == FRAGMENT and len(data) >= 48 and not struct.unpack_from("!H", data, 42)[0] >> 3:
                self.protocol, head = data[40], 48  # the first fragment bears what tells the flow
            addresses = data[8:24], data[24:40]
        else:
            raise ValueError
        self.source, self.destination = map(ipaddress.ip_address, addresses)
        self.body = data[head:]
        if len(self.body) < 8:
            raise ValueError
        self.ports = struct.unpack("!HH", self.body[:4]) if self.protocol in (6, 17, 132) else (0, 0)

    def ends(self):
        """Whence and whither."""
        return end(self.source, self.ports[0]), end(self.destination, self.ports[1])


class Matcher:
    """Tells which flow a packet belongs to, whatever was done to its addresses and ports.

    A datagram bears its flow in its first bytes. A SYN bears it in its sequence number, which is learnt where it leaves
    the sender; the answers acknowledge that number plus one.
    """

    def __init__(self, ports):
        self.learnt, self.ports = {}, ports

    def match(self, packet, leaving):
        """Flow and kind of a packet; None for any other packet."""
        if packet.protocol == 17:
            return self._datagram(packet.body[8:])
        if packet.protocol == 6 and len(packet.body) >= 14:
            return self._segment(packet.body, leaving)
        if packet.protocol == 132 and len(packet.body) >= 13:
            return self._chunk(packet.body, leaving)
        if packet.protocol in (1, 58) and packet.body[0] in ECHOES:
            found = self._datagram(packet.body[8:])
            return (found[0], ECHOES[packet.body[0]]) if found and found[1] == "request" else None
        if packet.protocol in (1, 58) and packet.body[0] in ICMP_ERRORS[packet.version]:
            try:
                quoted = Packet(packet.body[8:])
            except ValueError:
                return None
            about = self.match(quoted, False)
            if about is None and quoted.protocol == 6 and quoted.ports[0] in self.ports:
                about = self.ports[quoted.ports[0]], "request"
            kind = tuple(packet.body[:2])
            if quoted.protocol == 132 and kind in UNKNOWN_PROTOCOL:
                return None  # a pod's kernel without SCTP says so, and is answered for
            name = "port unreachable" if kind == PORT_UNREACHABLE[packet.version] else f"ICMP {kind[0]}/{kind[1]}"
            return (about[0], name) if about and about[1] == "request" else None
        return None

    @staticmethod
    def _datagram(payload):
        words = payload[:48].split()
        if len(words) < 4 or words[0] != b"proxylab" or words[1] not in (b"probe", b"reply"):  # a fence, or another's
            return None
        return int(words[3][-8:], 16), "request" if words[1] == b"probe" else "reply"

    def _chunk(self, body, leaving):
        """An INIT bears its flow in its initiate tag, and the answers in their header."""
        (verification,), kind = struct.unpack("!I", body[4:8]), {1: "request", 2: "reply", 6: "reset"}.get(body[12])
        if kind == "request":
            (tag,) = struct.unpack("!I", body[16:20])
            if leaving:
                self.learnt.setdefault(tag, len(self.learnt))
            flow = self.learnt.get(tag)
        else:
            flow = self.learnt.get(verification)
        return None if flow is None or kind is None else (flow, kind)

    def _segment(self, body, leaving):
        sequence, acknowledged = struct.unpack("!II", body[4:12])
        flags = body[13] & (SYN | RST | ACK)
        if flags == SYN:
            if leaving:
                self.learnt.setdefault(sequence, len(self.learnt))
            flow = self.learnt.get(sequence)
        else:
            flow = self.learnt.get((acknowledged - 1) & 0xFFFFFFFF)
        kind = {SYN: "request", SYN | ACK: "reply", RST | ACK: "reset"}.get(flags)
        return None if flow is None or kind is None else (flow, kind)
