"""The sockets of one stream: pulses go out, answers come in.

Owns: ``Datagrams`` and ``Connection``, which send a stream's pulses over UDP and TCP.
Must not: wait, choose when to send, or keep what became of a pulse (``Ledger`` does).

A client of UDP hears nobody but whom it dialled: its socket is connected. An ICMP error quotes the datagram that it is
about, so IP_RECVERR (ip(7)) says which pulse it was. A client of TCP dials again, with its next pulse, when its
connection has ended.
"""

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from proxylab.evidence.streams import BreakKind, StreamPacketFate
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.resolved import ResolvedProbe
from proxylab.traffic.answer import LONGEST_ANSWER, request_line
from proxylab.traffic.connect import RESET_ON_CLOSE, error_name
from proxylab.traffic.craft import filling
from proxylab.traffic.ledger import Ledger

__all__ = ["Connection", "Datagrams", "Pulsing"]

# include/uapi/linux/in.h, in6.h, errqueue.h; asm-generic/socket.h
_IP_RECVERR: Final = 11
_IPV6_RECVERR: Final = 25
_MSG_ERRQUEUE: Final = 0x2000
_SO_TIMESTAMPNS: Final = 35
_TIMESPEC: Final = struct.Struct("@qq")
_SOCK_EXTENDED_ERR: Final = struct.Struct("=IBBBBII")
_CONTROL: Final = 512
_MOST_AT_ONCE: Final = 256


class Pulsing(Protocol):
    """What sends the pulses of one stream."""

    def send(self) -> None:
        """Send one pulse."""

    def hear(self) -> bool:
        """Take in what has come. Whether anything had."""

    def descriptors(self) -> Iterator[int]:
        """The descriptors on which something may come."""

    def close(self) -> None:
        """Close what is open."""


def _bound(netns: NetNs, resolved: ResolvedProbe, port: int, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET if resolved.destination.version == 4 else socket.AF_INET6
    with inside(netns):
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
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
        """Send one datagram. What the sender's own kernel refuses is lost."""
        self.hear()  # an error that waits would be told instead of sending
        token = self._ledger.issue()
        line = request_line(token, self._filling)
        try:
            if not self._connected:
                self._sock.connect(self._peer)
                self._connected = True
            self._sock.send(line)
        except OSError as error:
            # The error may be an older datagram's, which came since (IP_RECVERR): it names that one, and none was sent.
            if self.hear():
                with suppress(OSError):
                    self._sock.send(line)
                    return
            self._ledger.unsent(token, error_name(error.errno))

    def hear(self) -> bool:
        """Take in answers and ICMP errors."""
        happened = False
        for _ in range(_MOST_AT_ONCE):
            if not (self._hear_error() or self._hear_answer()):
                break
            happened = True
        return happened

    def _hear_error(self) -> bool:
        try:
            payload, control, _, _ = self._sock.recvmsg(LONGEST_ANSWER, _CONTROL, _MSG_ERRQUEUE)
        except OSError:
            return False
        for level, kind, data in control:
            if (level, kind) in ((socket.IPPROTO_IP, _IP_RECVERR), (socket.IPPROTO_IPV6, _IPV6_RECVERR)):
                self._ledger.rejected(payload, error_name(_SOCK_EXTENDED_ERR.unpack_from(data)[0]))
        return True

    def _hear_answer(self) -> bool:
        try:
            line, control, _, _ = self._sock.recvmsg(LONGEST_ANSWER, _CONTROL)
        except BlockingIOError:
            return False
        except OSError:
            return True  # an error of which the queue tells more
        self._ledger.answered(line, _time_of(control))
        return True

    def descriptors(self) -> Iterator[int]:
        """That of its socket."""
        yield self._sock.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def _time_of(control: Sequence[tuple[int, int, bytes]]) -> int:
    """When the kernel got what was read, whenever somebody came to read it."""
    for _, kind, data in control:
        if kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()


class Connection:
    """A stream over TCP: one connection after the other, each dialled when the one before has ended.

    ``port_of`` gives the source port of the next one: a client whose author chose none dials from another each time.
    ``resets`` gives the times at which the sender got an RST for one of them, since it was last asked.
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
        self._unsaid = b""
        self._heard = b""

    def send(self) -> None:
        """Send one line, by a new connection where none stands."""
        self.hear()
        token = self._ledger.issue()
        if self._sock is None:
            try:
                self._dial()
            except OSError as error:
                self._ledger.unsent(token, error_name(error.errno))
                return
        self._unsaid += request_line(token, self._filling)
        self._say()

    def hear(self) -> bool:
        """Take in answers, and the end of the connection."""
        if self._sock is None or (self._dialling and not self._stands(self._sock)):
            return False
        happened = self._say()
        for _ in range(_MOST_AT_ONCE):
            if self._sock is None or not self._listen(self._sock):
                break
            happened = True
        return happened

    def descriptors(self) -> Iterator[int]:
        """That of its connection."""
        if self._sock is not None:
            yield self._sock.fileno()

    def close(self) -> None:
        """Reset the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _dial(self) -> None:
        sock = _bound(self._netns, self._resolved, self._port_of(), socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect((str(self._resolved.destination), self._resolved.port))
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            raise
        self._sock, self._dialling, self._unsaid, self._heard = sock, True, b"", b""

    def _stands(self, sock: socket.socket) -> bool:
        """Whether the handshake is done. SO_ERROR also tells of errors that the kernel only notes (``connect``)."""
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

    def _say(self) -> bool:
        if self._sock is None or self._dialling or not self._unsaid:
            return False
        try:
            said = self._sock.send(self._unsaid)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(error.errno)
            return True
        self._unsaid = self._unsaid[said:]
        return True

    def _listen(self, sock: socket.socket) -> bool:
        try:
            heard, control, _, _ = sock.recvmsg(LONGEST_ANSWER, _CONTROL)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(error.errno)
            return True
        if not heard:
            self._end(None)
            return True
        now = _time_of(control)
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            self._ledger.answered(line + b"\n", now)
        return True

    def _end(self, error: int | None) -> None:
        """The connection is over, and what is under way on it with it: by an error, or by the other side."""
        self.close()
        resets = self._resets()
        for at in resets:
            self._ledger.gone(at, BreakKind.RESET)
        if error is None:
            self._ledger.gone(time.time_ns(), BreakKind.CLOSED)
            self._ledger.turned_away(StreamPacketFate.LOST, "")
        else:
            by_icmp = not resets and error in _BY_ICMP
            self._ledger.turned_away(StreamPacketFate.REJECTED if by_icmp else StreamPacketFate.LOST, error_name(error))


_BY_ICMP: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES})
"""What an ICMP error makes of a dial (icmp_err_convert in net/ipv4/icmp.c); the first of them also comes of an RST."""
