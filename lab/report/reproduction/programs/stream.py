"""One stream: a flow that goes on while something changes, and what became of each of its pulses.

Owns: the sockets that send a stream's pulses, and the end of each pulse.
Must not: need anything but python3 and its standard library, or know what is expected.

A pulse is a datagram, or a line on a connection; who has lost a connection dials again with the next one. An ICMP error
quotes the datagram that it is about (IP_RECVERR of ip(7)). RSTs are seen on the sender's device.
"""

import contextlib
import errno
import socket
import struct
import time

from netns import enter
from packets import RST, Packet, token

RECVERR = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}
ERRQUEUE, OUTGOING = 0x2000, 4  # MSG_ERRQUEUE; PACKET_OUTGOING of if_packet.h
BY_ICMP = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES}
EACH = 1_000_000  # pulses of a stream before the numbers of the next one's begin


class Pulse:
    """One packet of a stream."""

    def __init__(self, number):
        self.number, self.at = number, time.monotonic()
        self.fate, self.backend, self.delay, self.peer = "", "", 0.0, ""


class Stream:
    """Sends one stream's pulses, and hears what comes back."""

    def __init__(self, case, place):
        self.case, self.first = case, place * EACH
        self.version = 6 if ":" in case["dialled"] else 4
        self.family = socket.AF_INET6 if self.version == 6 else socket.AF_INET
        self.by_udp = case["protocol"] == "UDP"
        self.pulses, self.ports, self.resets = [], set(), set()
        self.sock, self.unsaid, self.begun = None, b"", b""
        self.tied = None  # called with the source port before the next dial
        self.port = case["first port"]  # of the next connection: routers share flows by ports
        enter(case["namespace"])
        self.tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(3))
        if case["device"] != "stack":
            self.tap.bind((case["device"], 3))

    @property
    def outstanding(self):
        """The pulses that nothing has become of yet."""
        return [each for each in self.pulses if not each.fate]

    def dial(self):
        """Open a socket, and connect it. Raises OSError."""
        enter(self.case["namespace"])
        kind = socket.SOCK_DGRAM if self.by_udp else socket.SOCK_STREAM
        self.sock = socket.socket(self.family, kind | socket.SOCK_NONBLOCK)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.by_udp:
            self.sock.setsockopt(*RECVERR[self.version], 1)
        else:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.bind((self.case["address"], self.case["port"] or self.port))
        self.port = 0
        self.ports.add(self.sock.getsockname()[1])
        if self.tied:
            self.tied(self.sock.getsockname()[1])
            enter(self.case["namespace"])
        self.unsaid = self.begun = b""
        with contextlib.suppress(BlockingIOError):
            self.sock.connect((self.case["dialled"], self.case["dialled port"]))

    def send(self):
        """Send a pulse."""
        self.hear()
        pulse = Pulse(len(self.pulses))
        self.pulses.append(pulse)
        line = token("probe", self.first + pulse.number) + b"." * self.case["payload"] + b"\n"
        try:
            if self.sock is None:
                self.dial()
            if self.by_udp:
                self.tell(line)
            else:
                self.unsaid += line
                self.say()
        except OSError as error:
            pulse.fate = "lost"
            if not self.by_udp:
                self.end(error.errno)

    def tell(self, line):
        """Send a datagram, though the socket may have an older one's error to tell first. Raises OSError."""
        try:
            self.sock.send(line)
        except OSError:
            if not self.hear_error():
                raise
            with contextlib.suppress(OSError):  # of which the queue tells more, where a rule of its own node rejects
                self.sock.send(line)

    def say(self):
        """Say what could not be said before the connection stood. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while self.unsaid:
                self.unsaid = self.unsaid[self.sock.send(self.unsaid) :]

    def hear(self):
        """Take in answers, errors, and the end of a connection."""
        if self.sock is None:
            return
        try:
            while self.by_udp and self.hear_error():
                pass
            self.say()
            while True:
                data = self.sock.recv(65535)
                if not data:
                    self.end(0)
                    return
                *lines, self.begun = [data, b""] if self.by_udp else (self.begun + data).split(b"\n")
                for line in lines:
                    self.answered(line)
        except BlockingIOError:
            return
        except OSError as error:
            if not self.by_udp:
                self.end(error.errno)

    def hear_error(self):
        """Take in one ICMP error."""
        try:
            quoted, *_ = self.sock.recvmsg(65535, 512, ERRQUEUE)
        except OSError:
            return False
        self.settle(quoted, "rejected")
        return True

    def answered(self, line):
        """Take in one answer."""
        pulse = self.settle(line, "answered")
        if pulse:
            pulse.backend, pulse.delay = line.partition(b" from ")[2].strip().decode(), time.monotonic() - pulse.at

    def settle(self, line, fate):
        """The pulse that a line is about; None if it is nobody's, or settled."""
        if len(line) < 48 or not line.startswith(b"proxylab "):
            return None
        number = int(line[40:48], 16) - self.first
        if not 0 <= number < len(self.pulses) or self.pulses[number].fate:
            return None
        self.pulses[number].fate = fate
        return self.pulses[number]

    def end(self, number):
        """A connection is over: by the other side, or by an error; what was under way on it is lost with it."""
        before = len(self.resets)
        self.look()
        by_icmp = number in BY_ICMP and len(self.resets) == before
        for pulse in self.outstanding:
            pulse.fate = "rejected" if by_icmp else "lost"
        self.close()

    def give_up(self):
        """Wait no longer for anything."""
        for pulse in self.outstanding:
            pulse.fate = "lost"

    def look(self):
        """Count the RSTs that came for one of its connections."""
        with contextlib.suppress(OSError):
            while True:
                data, about = self.tap.recvfrom(65535)
                with contextlib.suppress(ValueError, IndexError):
                    packet = Packet(data[14:])
                    reset = packet.protocol == 6 and packet.body[13] & RST and packet.ports[1] in self.ports
                    if reset and about[2] != OUTGOING:
                        self.resets.add(bytes(packet.body[:12]))

    def close(self):
        """Close the socket; of a connection, reset it."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
