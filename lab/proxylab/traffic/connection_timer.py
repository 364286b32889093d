"""Times connections in a lab: ``python -m proxylab.traffic.connection_timer SERVERS``.

It runs in the network namespace of the client, and holds both ends of each connection in one thread. So what it times
is the work of the kernel, and in mode userspace that of the proxy's process: no other process has to wake up, and a
lab process that renders rules delays nothing.

Its standard input is a socket to the lab. That first brings the listening sockets of so many servers (SCM_RIGHTS),
which are numbered from 0; then an order in each line. Orders and answers are JSON.

* ``{"dial": [HOST, PORT], "until": [SERVER, …]}``: dial again and again, from a new port each time, until a connection
  reaches one of these servers. The answer is ``{"dialling": true}`` after the first dial, then ``{"met": SECONDS}``:
  when the first such connection was dialled, by CLOCK_MONOTONIC. Meanwhile, anything on the input ends the process.
* ``{"connect": [[HOST, PORT], …]}``: connect to each of them, one after the other. The answer has the fields of
  ``proxylab.evidence.timings.ConnectionTimes``.

Between two dials pass 0.2 ms, or a hundredth of the time since the first one: so a time is right to 1 %, and a wait of
a minute needs a thousand dials. A dial without an answer is given up before its SYN is sent again, for the second SYN
may meet rules that the first did not.

It needs nothing but the standard library, because a start must not take long.
"""

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

_LEAST_PAUSE: Final = 0.0002
_MOST_PAUSE: Final = 0.3
_PART: Final = 0.01
_DIAL_SECONDS: Final = 0.7
"""Less than the first timeout of a SYN (RFC 6298)."""
_MOST_OPEN: Final = 900
_PATIENCE_SECONDS: Final = 10.0
_ROUND_TRIPS: Final = 5
_RESET_ON_CLOSE: Final = struct.pack("@ii", 1, 0)  # struct linger: neither end keeps the connection (socket(7))
_NUMBER: Final = struct.Struct("!I")
_LISTENERS_AT_ONCE: Final = 200

Address = tuple[str, int]


class BegunDial(NamedTuple):
    """A connection that the client has begun, and when."""

    client: socket.socket
    at: float


class ListeningServers:
    """The listening sockets of the servers, and the channel to the lab, which ends a wait."""

    def __init__(self, listeners: Sequence[socket.socket], channel: socket.socket) -> None:
        self.epoll = select.epoll()
        self.numbers: Mapping[int, int] = {each.fileno(): number for number, each in enumerate(listeners)}
        self._listeners = listeners
        self._channel = channel.fileno()
        for each in listeners:
            each.setblocking(False)
            self.epoll.register(each.fileno(), select.EPOLLIN)
        self.epoll.register(self._channel, select.EPOLLIN)

    def events(self, seconds: float) -> list[int]:
        """The descriptors that are ready, once one is or the time is over; raises ``EOFError`` where the lab speaks.

        epoll(7) counts in milliseconds, select(2) in microseconds.
        """
        select.select([self.epoll.fileno()], [], [], max(0.0, seconds))
        found = [descriptor for descriptor, _ in self.epoll.poll(0)]
        if self._channel in found:
            raise EOFError
        return found

    def accept(self, descriptor: int) -> Iterator[socket.socket]:
        """All connections that wait at a listening socket."""
        with suppress(BlockingIOError):
            while True:
                try:
                    yield self._listeners[self.numbers[descriptor]].accept()[0]
                except ConnectionError:  # it was reset before it was accepted
                    continue

    def accepted_with(self, token: bytes) -> socket.socket:
        """The connection that begins with these bytes. Earlier ones, which a proxy has finished late, are closed."""
        ends_at = time.monotonic() + _PATIENCE_SECONDS
        while (left := ends_at - time.monotonic()) > 0:
            for descriptor in self.events(left):
                for server in self.accept(descriptor):
                    server.settimeout(_PATIENCE_SECONDS)
                    with suppress(ConnectionError):
                        if server.recv(len(token), socket.MSG_WAITALL) == token:
                            return server
                    server.close()
        raise TimeoutError(f"no connection came to a server within {_PATIENCE_SECONDS:g} s")


def meet(servers: ListeningServers, to: Address, until: Collection[int], begun: Callable[[], object]) -> float:
    """When the first connection was dialled that reached one of these servers. Raises ``EOFError`` to give up."""
    began = due = time.monotonic()
    dials: dict[int, BegunDial] = {}
    accepted: dict[int, socket.socket] = {}
    try:
        while True:
            if (now := time.monotonic()) >= due:
                _dial(servers, to, dials)
                if due == began:
                    begun()
                due = now + min(_MOST_PAUSE, max(_LEAST_PAUSE, (now - began) * _PART))
            _give_up(servers, dials, now - _DIAL_SECONDS)
            met = list[float]()
            while ready := servers.events(0.0 if met else due - time.monotonic()):
                met += _answered(servers, ready, dials, accepted, until)
                if not met and time.monotonic() >= due:
                    break
            if met:
                return min(met)
    finally:
        for each in (*(dial.client for dial in dials.values()), *accepted.values()):
            servers.epoll.unregister(each.fileno())
            each.close()


def _dial(servers: ListeningServers, to: Address, dials: dict[int, BegunDial]) -> None:
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    at = time.monotonic()
    try:
        client.connect(to)
    except BlockingIOError:
        pass  # EINPROGRESS
    except OSError:  # rejected at once, or no route
        client.close()
        return
    dials[client.fileno()] = BegunDial(client, at)
    servers.epoll.register(client.fileno(), select.EPOLLIN)


def _give_up(servers: ListeningServers, dials: dict[int, BegunDial], before: float) -> None:
    """Close the dials that have had their time, or are too many; the oldest come first."""
    while dials and (len(dials) > _MOST_OPEN or next(iter(dials.values())).at < before):
        _close(servers, dials, next(iter(dials)))


def _close(servers: ListeningServers, dials: dict[int, BegunDial], descriptor: int) -> None:
    servers.epoll.unregister(descriptor)
    dials.pop(descriptor).client.close()


def _answered(
    servers: ListeningServers,
    ready: Sequence[int],
    dials: dict[int, BegunDial],
    accepted: dict[int, socket.socket],
    until: Collection[int],
) -> Iterator[float]:
    """Serve what is ready; yields when those were dialled that have reached one of the servers ``until``."""
    for descriptor in ready:
        if descriptor in servers.numbers:
            for server in servers.accept(descriptor):
                with suppress(ConnectionError):
                    server.send(_NUMBER.pack(servers.numbers[descriptor]))
                server.setblocking(False)
                accepted[server.fileno()] = server
                servers.epoll.register(server.fileno(), select.EPOLLIN)
        elif descriptor in accepted:  # the client says nothing, so this is its end
            servers.epoll.unregister(descriptor)
            accepted.pop(descriptor).close()
        elif descriptor in dials:
            heard, dial = b"", dials[descriptor]
            with suppress(OSError):
                heard = dial.client.recv(_NUMBER.size)
            _close(servers, dials, descriptor)
            if len(heard) == _NUMBER.size and _NUMBER.unpack(heard)[0] in until:
                yield dial.at


def connect(servers: ListeningServers, addresses: Sequence[Address]) -> dict[str, Any]:
    """Connect to each address, one after the other."""
    first, established, began = list[float](), list[float](), time.perf_counter()
    for number, to in enumerate(addresses):
        token = _NUMBER.pack(number)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
            client.settimeout(_PATIENCE_SECONDS)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            dialled = time.perf_counter()
            client.connect(to)
            client.sendall(token)
            with servers.accepted_with(token) as server:
                first.append(time.perf_counter() - dialled)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                established.append(sorted(_round_trip(client, server) for _ in range(_ROUND_TRIPS))[_ROUND_TRIPS // 2])
    return {"first": first, "established": established, "seconds": time.perf_counter() - began}


def _round_trip(client: socket.socket, server: socket.socket) -> float:
    began = time.perf_counter()
    for sender, receiver in ((client, server), (server, client)):
        sender.sendall(b".")
        receiver.recv(1)
    return time.perf_counter() - began


def _listeners(channel: socket.socket, count: int) -> list[socket.socket]:
    found: list[int] = []
    while len(found) < count:
        data, descriptors, _, _ = socket.recv_fds(channel, 1, _LISTENERS_AT_ONCE)
        if not data:
            raise EOFError
        found += descriptors
    return [socket.socket(fileno=each) for each in found]


def _orders(channel: socket.socket) -> Iterator[dict[str, Any]]:
    """Each order, until the lab hangs up. No more is read than the line: what follows it shall end a wait."""
    line = b""
    while part := channel.recv(65536, socket.MSG_PEEK):
        end = part.find(b"\n") + 1
        line += channel.recv(end or len(part))
        if end:
            yield json.loads(line)
            line = b""


def serve(channel: socket.socket, count: int) -> None:
    """Follow the lab's orders until it hangs up."""

    def say(answer: Mapping[str, Any]) -> None:
        channel.sendall(json.dumps(answer).encode() + b"\n")

    servers = ListeningServers(_listeners(channel, count), channel)
    for order in _orders(channel):
        if "connect" in order:
            say(connect(servers, [(host, port) for host, port in order["connect"]]))
        else:
            host, port = order["dial"]
            say({"met": meet(servers, (host, port), order["until"], lambda: say({"dialling": True}))})


if __name__ == "__main__":
    with suppress(EOFError), socket.socket(fileno=0) as _channel:
        serve(_channel, int(sys.argv[1]))
