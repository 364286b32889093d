"""The sockets of one stream: they send its packets and read the answers.

``Datagrams`` sends over UDP, ``StreamConnection`` over TCP and SCTP. Neither waits nor chooses when to send; ``Ledger``
keeps the fate of each packet.

A UDP client's socket is connected, so it receives only from the address that it dialled. An ICMP error quotes the
datagram that it is about, so IP_RECVERR (ip(7)) names the packet. When a TCP client's connection has ended, it dials
again with its next packet.
"""

import errno
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from proxylab.addresses import Transport
from proxylab.evidence.stream_records import BreakKind, StreamPacketFate
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.resolved import ResolvedProbe
from proxylab.traffic.answer import LONGEST_ANSWER, request_line
from proxylab.traffic.connect import RESET_ON_CLOSE, error_name
from proxylab.traffic.craft import filling
from proxylab.traffic.stream_ledger import Ledger

# include/uapi/linux/in.h, in6.h, errqueue.h; asm-generic/socket.h
_IP_RECVERR: Final = 11
_IPV6_RECVERR: Final = 25
_MSG_ERRQUEUE: Final = 0x2000
_SO_TIMESTAMPNS: Final = 35
_TIMESPEC: Final = struct.Struct("@qq")
_SOCK_EXTENDED_ERR: Final = struct.Struct("=IBBBBII")
_SCTP_NODELAY: Final = 3  # include/uapi/linux/sctp.h
_CONTROL: Final = 512
_MOST_AT_ONCE: Final = 256


class StreamSocket(Protocol):
    """The socket that sends the packets of one stream."""

    def send(self) -> None:
        """Send one packet."""

    def receive(self) -> bool:
        """Read what has come. Returns whether there was anything."""

    def close(self) -> None:
        """Close what is open."""


def _bound(netns: NetNs, resolved: ResolvedProbe, port: int, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET if resolved.destination.version == 4 else socket.AF_INET6
    with inside(netns):
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, resolved.protocol_number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.bind((str(resolved.sender.address), port))
    except OSError:
        sock.close()
        raise
    return sock


class Datagrams:
    """A stream over UDP."""

    def __init__(self, netns: NetNs, resolved: ResolvedProbe, port: int, ledger: Ledger) -> None:
        self._ledger = ledger
        self._filling = filling(resolved.payload)
        self._sock = _bound(netns, resolved, port, socket.SOCK_DGRAM)
        if resolved.destination.version == 4:
            self._sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        else:
            self._sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        self._peer = (str(resolved.destination), resolved.port)
        self._connected = False

    def send(self) -> None:
        """Send one datagram. A datagram that the sender's own kernel refuses is lost."""
        self.receive()  # send(2) would report a pending error instead of sending
        token = self._ledger.issue()
        line = request_line(token, self._filling)
        try:
            if not self._connected:
                self._sock.connect(self._peer)
                self._connected = True
            self._sock.send(line)
        except OSError as error:
            # The error may be an older datagram's that came since (IP_RECVERR): it belongs to that one, and none was
            # sent.
            if self.receive():
                with suppress(OSError):
                    self._sock.send(line)
                    return
            self._ledger.unsent(token, error_name(error.errno))

    def receive(self) -> bool:
        """Read answers and ICMP errors."""
        happened = False
        for _ in range(_MOST_AT_ONCE):
            if not (self._receive_error() or self._receive_answer()):
                break
            happened = True
        return happened

    def _receive_error(self) -> bool:
        try:
            payload, control, _, _ = self._sock.recvmsg(LONGEST_ANSWER, _CONTROL, _MSG_ERRQUEUE)
        except OSError:
            return False
        for level, kind, data in control:
            if (level, kind) in ((socket.IPPROTO_IP, _IP_RECVERR), (socket.IPPROTO_IPV6, _IPV6_RECVERR)):
                self._ledger.rejected(payload, error_name(_SOCK_EXTENDED_ERR.unpack_from(data)[0]))
        return True

    def _receive_answer(self) -> bool:
        try:
            line, control, _, _ = self._sock.recvmsg(LONGEST_ANSWER, _CONTROL)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the error queue has the details
        self._ledger.answered(line, _time_of(control))
        return True

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def _time_of(control: Sequence[tuple[int, int, bytes]]) -> int:
    """When the kernel received the data, however late it is read."""
    for _, kind, data in control:
        if kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()


class StreamConnection:
    """A stream over TCP or SCTP: one connection after the other, each dialled when the one before has ended.

    ``port_of`` gives the source port of the next one: a client without an author-chosen port dials from another each
    time. ``resets`` gives the times at which the sender got an RST or ABORT for one of them since the last call.
    """

    def __init__(
        self,
        netns: NetNs,
        resolved: ResolvedProbe,
        ledger: Ledger,
        port_of: Callable[[], int],
        resets: Callable[[], Sequence[int]],
    ) -> None:
        self._netns = netns
        self._resolved = resolved
        self._port_of = port_of
        self._ledger = ledger
        self._resets = resets
        self._filling = filling(resolved.payload)
        self._sock: socket.socket | None = None
        self._dialling = False
        self._unsent = b""
        self._received = b""

    def send(self) -> None:
        """Send one line, over a new connection if none is open."""
        self.receive()
        token = self._ledger.issue()
        if self._sock is None:
            try:
                self._dial()
            except OSError as error:
                self._ledger.unsent(token, error_name(error.errno))
                return
        self._unsent += request_line(token, self._filling)
        self._flush()

    def receive(self) -> bool:
        """Read answers, and the end of the connection."""
        if self._sock is None or (self._dialling and not self._is_connected(self._sock)):
            return False
        happened = self._flush()
        for _ in range(_MOST_AT_ONCE):
            if self._sock is None or not self._read(self._sock):
                break
            happened = True
        return happened

    def close(self) -> None:
        """Reset the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _dial(self) -> None:
        sock = _bound(self._netns, self._resolved, self._port_of(), socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        if self._resolved.protocol is Transport.TCP:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            sock.setsockopt(socket.IPPROTO_SCTP, _SCTP_NODELAY, 1)
        try:
            sock.connect((str(self._resolved.destination), self._resolved.port))
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            raise
        self._sock, self._dialling, self._unsent, self._received = sock, True, b"", b""

    def _is_connected(self, sock: socket.socket) -> bool:
        """Whether the handshake is done. SO_ERROR also returns errors that the kernel only notes (see ``connect``)."""
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._end(failed)
            return False
        try:
            sock.getpeername()
        except OSError:
            return False
        self._dialling = False
        return True

    def _flush(self) -> bool:
        if self._sock is None or self._dialling or not self._unsent:
            return False
        try:
            written = self._sock.send(self._unsent)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(error.errno)
            return True
        self._unsent = self._unsent[written:]
        return True

    def _read(self, sock: socket.socket) -> bool:
        try:
            received, control, _, _ = sock.recvmsg(LONGEST_ANSWER, _CONTROL)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(error.errno)
            return True
        if not received:
            self._end(None)
            return True
        now = _time_of(control)
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            self._ledger.answered(line + b"\n", now)
        return True

    def _end(self, error: int | None) -> None:
        """Record the end of the connection, by an error or by the peer, and the fate of its packets under way."""
        self.close()
        resets = self._resets()
        for at in resets:
            self._ledger.connection_ended(at, BreakKind.RESET)
        if error is None:
            self._ledger.connection_ended(time.time_ns(), BreakKind.CLOSED)
            self._ledger.settle_all(StreamPacketFate.LOST, "")
        else:
            by_icmp = not resets and error in _BY_ICMP
            self._ledger.settle_all(StreamPacketFate.REJECTED if by_icmp else StreamPacketFate.LOST, error_name(error))


_BY_ICMP: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES})
"""The errors that an ICMP error makes of a dial (icmp_err_convert in net/ipv4/icmp.c); an RST also causes the first."""
