"""Responders: what listens on the ports of pods, and says who it is and whom it saw.

Owns: every listening socket of a lab, and the connections made to them. On the ports of name servers stand the same
sockets: what does not begin as our words or HTTP do is a question about a name.
Must not: let a client hold anything up. What is half open, too long or garbage costs its own connection only, and
connections are bounded: the oldest makes room.

All sockets stand in one epoll. ``pump`` does, without waiting, whatever is due; a run of an errand calls it after each
chunk of packets, and the event loop calls it whenever a descriptor is ready between runs.
"""

import asyncio
import errno
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from proxylab.addresses import IPAddress, Protocol
from proxylab.errors import InternalError
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Listener, Namespace, Plan
from proxylab.traffic.answer import Voice, is_http
from proxylab.traffic.connect import has_sctp
from proxylab.traffic.identity import WORDS, goes_on

__all__ = ["PortsTakenError", "Responders"]

_BACKLOG: Final = 4096
_CONNECTIONS: Final = 512
_LONGEST_LINE: Final = 128 * 1024
_AT_ONCE: Final = 4096
_ROUNDS: Final = 16
_BUFFER: Final = 4 << 20


class PortsTakenError(Exception):
    """Something else listens on ports of the plan's listeners. ``taken`` are these, each with its namespace's name."""

    def __init__(self, taken: Sequence[tuple[str, Listener]]) -> None:
        super().__init__(", ".join(f"{netns_name} {each.protocol} {each.port}" for netns_name, each in taken))
        self.taken = tuple(taken)


Names = Callable[[str, bytes, bool], bytes | None]
"""From a name server's name, a DNS message and whether it came by UDP, to what is said; ``None`` for silence."""

_LENGTH: Final = struct.Struct("!H")
_OUR_WORDS: Final = (b"p", b"G", b"H")
"""How a token and HTTP begin. A stream of DNS messages begins with a length, and no question is so long."""


@dataclass(slots=True)
class _Listener:
    """A listening socket, or a UDP socket, and the voice behind it; ``names`` answers where names are served."""

    sock: socket.socket
    voice: Voice
    names: Callable[[bytes, bool], bytes | None] | None = None


@dataclass(slots=True)
class _Guest:
    """A TCP client that has not yet finished its line."""

    sock: socket.socket
    listener: _Listener
    peer: tuple[str, int]
    heard: bytearray


class Responders:
    """All responders of a lab. Open until ``close``."""

    def __init__(self, netns_by_name: Mapping[str, NetNs], plan: Plan, names: Names | None = None) -> None:
        """Bind a socket for every listener of the plan; ``names`` answers for those that serve names.

        Raises:
            PortsTakenError: something else listens on these ports; what was opened is closed again.
            InternalError: naming the listener whose port could not be bound; what was opened is closed again.
        """
        taken: list[tuple[str, Listener]] = []
        self._epoll = select.epoll()
        self._tcp: dict[int, _Listener] = {}
        self._udp: dict[int, _Listener] = {}
        self._guests: dict[int, _Guest] = {}
        self._names = names
        self._loop: asyncio.AbstractEventLoop | None = None
        for namespace in plan.namespaces:
            for listener in namespace.listeners:
                if listener.protocol is Protocol.SCTP and not has_sctp():
                    continue  # ``associations`` answers for it
                try:
                    for address in _listening_on(namespace, listener):
                        self._listen(netns_by_name[namespace.name], listener, address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        taken.append((namespace.name, listener))
                        continue
                    self.close()
                    raise InternalError(
                        f"{listener.name} in namespace {namespace.name} cannot listen on "
                        f"{listener.protocol} {listener.port}: {error}"
                    ) from error
        if taken:
            self.close()
            raise PortsTakenError(taken)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the event loop call ``pump`` whenever something waits, for traffic that no errand sends."""
        loop.add_reader(self._epoll.fileno(), self.pump)
        self._loop = loop

    def pump(self) -> int:
        """Answer all that waits, and return how many datagrams, connections and lines that were. Never waits."""
        done = 0
        for _ in range(_ROUNDS):
            events = self._epoll.poll(0, _AT_ONCE)
            if not events:
                break
            for fd, _event in events:
                done += self._serve(fd)
        return done

    def hang_up(self, names: Collection[str]) -> None:
        """Answer what has come, and then close the connections of these pods, as a program does that ends."""
        self.pump()
        for fd in [fd for fd, guest in self._guests.items() if guest.listener.voice.name in names]:
            self._dismiss(fd)

    def close(self) -> None:
        """Close every socket; clients in mid-dialogue are reset or finished by their kernel."""
        if self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop = None
        for fd in tuple(self._guests):
            self._dismiss(fd)
        for listener in (*self._tcp.values(), *self._udp.values()):
            listener.sock.close()
        self._epoll.close()

    def _listen(self, netns: NetNs, listener: Listener, address: IPAddress) -> None:
        kind, control_sockets = socket.SOCK_STREAM, self._tcp
        if listener.protocol is Protocol.UDP:
            kind, control_sockets = socket.SOCK_DGRAM, self._udp
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with inside(netns):
            sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, listener.protocol.number)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind is socket.SOCK_STREAM:
                # Connections of a former run may be in TIME_WAIT. UDP has none, and there the option would let a
                # second socket in, which then takes the datagrams of the first (socket(7)).
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((str(address), listener.port))
            if kind is socket.SOCK_STREAM:
                sock.listen(_BACKLOG)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        except OSError:
            sock.close()
            raise
        names = partial(self._names, listener.name) if listener.serves_names and self._names is not None else None
        control_sockets[sock.fileno()] = _Listener(sock, Voice(listener.name), names)

    def _serve(self, fd: int) -> int:
        if listener := self._udp.get(fd):
            return _answer_datagrams(listener)
        if listener := self._tcp.get(fd):
            return self._welcome(listener)
        if guest := self._guests.get(fd):
            return self._listen_to(guest)
        return 0

    def _welcome(self, listener: _Listener) -> int:
        for done in range(_AT_ONCE):
            try:
                sock, peer = listener.sock.accept()
            except OSError as error:
                # Nobody is left, or who was left is gone: accept(2) passes on errors of the waiting connection.
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._guests:
                    self._dismiss(next(iter(self._guests)))
                return done
            if len(self._guests) >= _CONNECTIONS:
                self._dismiss(next(iter(self._guests)))
            sock.setblocking(False)
            guest = _Guest(sock, listener, (peer[0], peer[1]), bytearray())
            self._guests[sock.fileno()] = guest
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._listen_to(guest)
        return _AT_ONCE

    def _listen_to(self, guest: _Guest) -> int:
        fd = guest.sock.fileno()
        try:
            heard = guest.sock.recv(_LONGEST_LINE)
        except BlockingIOError:
            return 0
        except OSError:
            self._dismiss(fd)
            return 1
        guest.heard += heard
        if guest.listener.names is not None and not guest.heard.startswith(_OUR_WORDS):
            if not heard or not _answer_questions(guest, guest.listener.names):
                self._dismiss(fd)
            return 1
        while goes_on(guest.heard) and b"\n" in guest.heard:
            line, _, guest.heard = guest.heard.partition(b"\n")
            _say(guest, line)
        if (b"\r\n\r\n" if is_http(guest.heard) else b"\n") in guest.heard:
            _say(guest, guest.heard)
            self._dismiss(fd)
        elif not heard or len(guest.heard) > _LONGEST_LINE:
            self._dismiss(fd)
        return 1

    def _dismiss(self, fd: int) -> None:
        # Closing takes the descriptor out of the epoll, too (epoll(7)): there is no duplicate of it.
        self._guests.pop(fd).sock.close()


def _say(guest: _Guest, request: bytearray) -> None:
    """Answer. That fits into an empty send buffer; if the client is gone, the taps tell."""
    with suppress(OSError):
        guest.sock.send(guest.listener.voice.answer(bytes(request), *guest.peer) or b"")


def _listening_on(namespace: Namespace, listener: Listener) -> Iterator[IPAddress]:
    """The address it listens on, or all addresses of each family that the namespace has.

    A socket for each family: one for both would show IPv4 peers by mapped addresses (RFC 4291, section 2.5.5.2).
    """
    if listener.address is not None:
        yield listener.address
        return
    for family in dict.fromkeys(type(address.interface.ip) for address in namespace.addresses):
        yield family(0)


def _answer_questions(guest: _Guest, names: Callable[[bytes, bool], bytes | None]) -> bool:
    """Answer every whole DNS message of a stream, one after the other (RFC 7766). Whether the guest may stay."""
    heard = guest.heard
    while len(heard) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(heard)
        if len(heard) < _LENGTH.size + length:
            break
        said = names(bytes(heard[_LENGTH.size : _LENGTH.size + length]), False)
        del heard[: _LENGTH.size + length]
        if said is None:
            return False
        framed = _LENGTH.pack(len(said)) + said
        try:
            if guest.sock.send(framed) < len(framed):
                return False  # who asks on without listening has filled the buffer
        except OSError:
            return False
    return True


def _answer_datagrams(listener: _Listener) -> int:
    receive, send, voice, names = listener.sock.recvfrom, listener.sock.sendto, listener.voice, listener.names
    for done in range(_AT_ONCE):
        try:
            request, peer = receive(65535)
        except OSError:
            # EAGAIN: none is left. A pending ICMP error of an earlier answer (ip(7)) ends this round; epoll comes back.
            return done
        if names is not None and not request.startswith(WORDS):
            answer = names(request, True)
        else:
            answer = voice.answer(request, peer[0], peer[1])
        if answer is not None:
            # EPERM or no route: the answer is missing at the taps, which is the evidence.
            with suppress(OSError):
                send(answer, peer)
    return _AT_ONCE
