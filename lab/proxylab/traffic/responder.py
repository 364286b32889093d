"""Responders: they listen on the ports of pods, and answer with their name and the peer that they saw.

``Responders`` owns every listening socket of a lab, and the connections made to them. The ports of name servers have
the same sockets: a request that begins neither with a token nor with HTTP is a DNS message.

No client can hold anything up. A half-open, too long or malformed request costs only its own connection, and
connections are bounded: a new one replaces the oldest.

All sockets are in one epoll. ``pump`` serves, without waiting, all that is ready. A probe's run calls it after each
chunk of packets, and the event loop calls it whenever a descriptor is ready between runs.
"""

import asyncio
import errno
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from proxylab.accepting import REST_SECONDS, has_no_room
from proxylab.addresses import IPAddress, Protocol
from proxylab.errors import InternalError
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Listener, Plan, PlannedNamespace
from proxylab.timing import Deadline
from proxylab.traffic.answer import AnswerWriter, is_http
from proxylab.traffic.connect import has_sctp
from proxylab.traffic.identity import WORDS, is_of_probe, is_of_stream

_BACKLOG: Final = 4096
_CONNECTIONS: Final = 512
_LONGEST_LINE: Final = 128 * 1024
_EVENTS_AT_ONCE: Final = 4096
_ROUNDS: Final = 16
_RECEIVE_BUFFER_BYTES: Final = 4 << 20


# include/uapi/linux/in.h, in6.h: the option that asks for the destination of each datagram, and where it is in struct
# in_pktinfo and in6_pktinfo.
_SAY_WHERE: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 8),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
}
_WHERE: Final = {
    (socket.IPPROTO_IP, 8): (socket.AF_INET, slice(8, 12)),
    (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO): (socket.AF_INET6, slice(0, 16)),
}
_CONTROL_BYTES: Final = 64


class PortsTakenError(Exception):
    """Another program listens on ports of the plan's listeners. ``taken`` are these, each with its namespace's name."""

    def __init__(self, taken: Sequence[tuple[str, Listener]]) -> None:
        super().__init__(", ".join(f"{netns_name} {each.protocol} {each.port}" for netns_name, each in taken))
        self.taken = tuple(taken)


Names = Callable[[str, bytes, bool], bytes | None]
"""From a name server's name, a DNS message and whether it came over UDP, to the answer; ``None`` for no answer."""

Note = Callable[[str, Protocol, bytes, tuple[str, int], tuple[str, int]], None]
"""Called with the name of a pod, a protocol and a request, with the peer that has sent it and where it has come."""

_LENGTH: Final = struct.Struct("!H")
_NOT_DNS: Final = (b"p", b"G", b"H")
"""The first byte of a token and of HTTP. A DNS message over TCP begins with its length, and none is so long."""


@dataclass(slots=True)
class _Listener:
    """A listening socket, or a UDP socket, and the voice that answers; ``names`` answers DNS messages.

    A ``silent`` one notes what comes, and sends nothing.
    """

    netns_name: str
    sock: socket.socket
    voice: AnswerWriter
    names: Callable[[bytes, bool], bytes | None] | None = None
    silent: bool = False


@dataclass(slots=True)
class _Client:
    """A TCP client whose request is not complete, or a probe's flow whose connection has not ended.

    ``unsent`` are answers to a stream for which its send buffer had no room: after a link is mended, all requests that
    waited come at once.
    """

    sock: socket.socket
    listener: _Listener
    peer: tuple[str, int]
    own: tuple[str, int]
    received: bytearray
    unsent: bytearray = field(default_factory=bytearray)


class Responders:
    """All responders of a lab. Open until ``close``."""

    def __init__(
        self, netns_by_name: Mapping[str, NetNs], plan: Plan, names: Names | None = None, note: Note | None = None
    ) -> None:
        """Bind a socket for every listener of the plan; ``names`` answers for its name servers.

        ``note`` is told of each request, if given.

        Raises:
            PortsTakenError: another program listens on these ports; sockets opened so far are closed again.
            InternalError: naming the listener whose port could not be bound; sockets opened so far are closed again.
        """
        taken: list[tuple[str, Listener]] = []
        self._epoll = select.epoll()
        self._tcp: dict[int, _Listener] = {}
        self._udp: dict[int, _Listener] = {}
        self._clients: dict[int, _Client] = {}
        self._names = names
        self._note = note
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resting: dict[int, Deadline] = {}
        for namespace in plan.namespaces:
            try:
                self.add(netns_by_name[namespace.name], namespace)
            except PortsTakenError as error:
                taken += error.taken
            except BaseException:
                self.close()
                raise
        if taken:
            self.close()
            raise PortsTakenError(taken)

    def add(self, netns: NetNs, namespace: PlannedNamespace) -> None:
        """Bind a socket for every listener of a namespace of the plan, or of one that has come later.

        Raises:
            PortsTakenError: another program listens on these ports; on the others the responders listen.
            InternalError: naming the listener whose port could not be bound.
        """
        taken: list[tuple[str, Listener]] = []
        for listener in namespace.listeners:
            if listener.program or (listener.protocol is Protocol.SCTP and not has_sctp()):
                continue  # a real program answers there, or ``associations``
            try:
                for address in _listening_on(namespace, listener):
                    self._listen(netns, namespace.name, listener, address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise InternalError(
                        f"{listener.name} in namespace {namespace.name} cannot listen on "
                        f"{listener.protocol} {listener.port}: {error}"
                    ) from error
                taken.append((namespace.name, listener))
        if taken:
            raise PortsTakenError(taken)

    def remove(self, name: str) -> None:
        """Close the sockets of a pod, and the connections made to them."""
        for fd in [fd for fd, client in self._clients.items() if client.listener.voice.name == name]:
            self._drop(fd)
        for listeners in (self._tcp, self._udp):
            for fd in [fd for fd, listener in listeners.items() if listener.voice.name == name]:
                listeners.pop(fd).sock.close()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the event loop call ``pump`` whenever a socket is ready, for traffic that no probe sends."""
        loop.add_reader(self._epoll.fileno(), self.pump)
        self._loop = loop

    def pump(self) -> int:
        """Answer all that is ready, and return the number of datagrams, connections and lines. Never waits."""
        done = 0
        for fd in [fd for fd, rest in self._resting.items() if rest.passed]:
            del self._resting[fd]
            if fd in self._tcp:
                self._epoll.modify(fd, select.EPOLLIN)
        for _ in range(_ROUNDS):
            events = self._epoll.poll(0, _EVENTS_AT_ONCE)
            if not events:
                break
            for fd, _event in events:
                done += self._serve(fd)
        return done

    def hang_up(self, names: Collection[str]) -> None:
        """Answer what has come, and then close the connections of these pods, as a program does at its end."""
        self.pump()
        for fd in [fd for fd, client in self._clients.items() if client.listener.voice.name in names]:
            self._drop(fd)

    def close(self) -> None:
        """Close every socket; the kernel resets or finishes connections in mid-dialogue."""
        if self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop = None
        for fd in tuple(self._clients):
            self._drop(fd)
        for listener in (*self._tcp.values(), *self._udp.values()):
            listener.sock.close()
        self._epoll.close()

    def _listen(self, netns: NetNs, netns_name: str, listener: Listener, address: IPAddress) -> None:
        kind, listeners = socket.SOCK_STREAM, self._tcp
        if listener.protocol is Protocol.UDP:
            kind, listeners = socket.SOCK_DGRAM, self._udp
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with inside(netns):
            sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, listener.protocol.number)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind is socket.SOCK_STREAM:
                # Connections of an earlier run may be in TIME_WAIT. UDP has none, and there the option would let a
                # second socket in, which then takes the datagrams of the first (socket(7)).
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((str(address), listener.port))
            if kind is socket.SOCK_STREAM:
                sock.listen(_BACKLOG)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
                level, option = _SAY_WHERE[family]
                sock.setsockopt(level, option, 1)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        except OSError:
            sock.close()
            raise
        names = partial(self._names, listener.name) if listener.serves_names and self._names is not None else None
        heard = None if self._note is None else partial(self._note, listener.name, listener.protocol)
        voice = AnswerWriter(listener.name, heard)
        listeners[sock.fileno()] = _Listener(netns_name, sock, voice, names, listener.silent)

    def _serve(self, fd: int) -> int:
        if listener := self._udp.get(fd):
            return _answer_datagrams(listener)
        if listener := self._tcp.get(fd):
            return self._accept(listener)
        if client := self._clients.get(fd):
            return self._receive(client)
        return 0

    def _accept(self, listener: _Listener) -> int:
        for done in range(_EVENTS_AT_ONCE):
            try:
                sock, peer = listener.sock.accept()
            except OSError as error:
                # EAGAIN: none is left. Or the waiting connection has failed: accept(2) passes on its error.
                if has_no_room(error):
                    if self._clients:
                        self._drop(next(iter(self._clients)))
                    else:
                        self._rest(listener.sock.fileno())
                return done
            if len(self._clients) >= _CONNECTIONS:
                self._drop(next(iter(self._clients)))
            sock.setblocking(False)
            client = _Client(sock, listener, peer[:2], sock.getsockname()[:2], bytearray())
            self._clients[sock.fileno()] = client
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._receive(client)
        return _EVENTS_AT_ONCE

    def _rest(self, fd: int) -> None:
        """Watch a listening socket no more for a moment, in which others may close a descriptor."""
        self._epoll.modify(fd, 0)
        self._resting[fd] = Deadline.after(REST_SECONDS)
        if self._loop is not None:
            self._loop.call_later(REST_SECONDS, self._pump_if_open)

    def _pump_if_open(self) -> None:
        if not self._epoll.closed:
            self.pump()

    def _receive(self, client: _Client) -> int:
        fd = client.sock.fileno()
        if client.unsent and not self._flush(client):
            return 1
        try:
            received = client.sock.recv(_LONGEST_LINE)
        except BlockingIOError:
            return 0
        except OSError:
            self._drop(fd)
            return 1
        client.received += received
        if client.listener.names is not None and not client.received.startswith(_NOT_DNS):
            if not received or not _answer_questions(client, client.listener.names):
                self._drop(fd)
            return 1
        self._answer_stream(client)
        if (b"\r\n\r\n" if is_http(client.received) else b"\n") in client.received:
            _send_answer(client, client.received)
            if is_of_probe(client.received) and client.sock.proto == socket.IPPROTO_TCP and received:
                client.received.clear()  # the client ends the connection first, so that it sees both ends cross
            else:
                self._drop(fd)
        elif not received or len(client.received) > _LONGEST_LINE:
            self._drop(fd)
        return 1

    def _answer_stream(self, client: _Client) -> None:
        while is_of_stream(client.received) and b"\n" in client.received:
            line, _, client.received = client.received.partition(b"\n")
            client.unsent += client.listener.voice.answer(bytes(line), client.peer, client.own) or b""
        if client.unsent:
            self._flush(client)

    def _flush(self, client: _Client) -> bool:
        """Send what is left of the answers, or as much as the send buffer takes. Whether all is sent.

        Until then the epoll waits for room, and the client's next requests wait in its kernel.
        """
        try:
            del client.unsent[: client.sock.send(client.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            client.unsent.clear()  # the client is gone, as reading tells
        self._epoll.modify(client.sock.fileno(), select.EPOLLOUT if client.unsent else select.EPOLLIN)
        return not client.unsent

    def _drop(self, fd: int) -> None:
        # Closing takes the descriptor out of the epoll, too (epoll(7)): there is no duplicate of it.
        self._clients.pop(fd).sock.close()


def _send_answer(client: _Client, request: bytearray) -> None:
    """Send the answer. It fits into an empty send buffer; if the client is gone, the taps show it."""
    with suppress(OSError):
        client.sock.send(client.listener.voice.answer(bytes(request), client.peer, client.own) or b"")


def _listening_on(namespace: PlannedNamespace, listener: Listener) -> Iterator[IPAddress]:
    """The address it listens on, or all addresses of each family that the namespace has.

    A socket for each family: one for both would show IPv4 peers by mapped addresses (RFC 4291, section 2.5.5.2).
    """
    if listener.address is not None:
        yield listener.address
        return
    for family in dict.fromkeys(type(address.interface.ip) for address in namespace.addresses):
        yield family(0)


def _answer_questions(client: _Client, names: Callable[[bytes, bool], bytes | None]) -> bool:
    """Answer every whole DNS message of a stream, one after the other (RFC 7766). False to close the connection."""
    received = client.received
    while len(received) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(received)
        if len(received) < _LENGTH.size + length:
            break
        answer = names(bytes(received[_LENGTH.size : _LENGTH.size + length]), False)
        del received[: _LENGTH.size + length]
        if answer is None:
            return False
        framed = _LENGTH.pack(len(answer)) + answer
        try:
            if client.sock.send(framed) < len(framed):
                return False  # the client sends requests without reading the answers
        except OSError:
            return False
    return True


def _address_in(control: Sequence[tuple[int, int, bytes]]) -> str:
    """The address to which a datagram was sent."""
    for level, kind, data in control:
        if (level, kind) in _WHERE:
            family, where = _WHERE[level, kind]
            return socket.inet_ntop(family, data[where])
    return ""


def _answer_datagrams(listener: _Listener) -> int:
    receive, send, voice, names = listener.sock.recvmsg, listener.sock.sendto, listener.voice, listener.names
    port = listener.sock.getsockname()[1]
    for done in range(_EVENTS_AT_ONCE):
        try:
            request, control, _, peer = receive(65535, _CONTROL_BYTES)
        except OSError:
            # EAGAIN: none is left. A pending ICMP error of an earlier answer (ip(7)) ends this round; epoll reports the
            # rest.
            return done
        if names is not None and not request.startswith(WORDS):
            answer = names(request, True)
        else:
            answer = voice.answer(request, peer[:2], (_address_in(control), port))
        if answer is not None and not listener.silent:
            # EPERM or no route: the answer is missing at the taps, which is the evidence.
            with suppress(OSError):
                send(answer, peer)
    return _EVENTS_AT_ONCE
