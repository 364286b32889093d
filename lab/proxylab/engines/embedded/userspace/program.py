"""The proxy process of mode userspace: ``python -m proxylab.engines.embedded.userspace.program LISTEN IDLE``.

It runs in its node's network namespace and listens on one port for each service port. It ends every connection there
and opens another one to an endpoint. A refused endpoint makes it try the next one (pkg/proxy/userspace/proxysocket.go).

Its standard input is a socket to the engine, with one JSON object in each line. ``{"number": 1, "serve": {KEY: PORT},
"close": [KEY]}`` names the service ports that changed, where PORT has ``protocol``, ``endpoints``, ``affinity`` and
``node_port``. The answer has the same number, the port that serves each key, a reason for each that failed, and how
many datagrams each has discarded since the process began. Before it answers, the process passes on every datagram that
it has: so an order that names no service port shows that none waits here. At the end of the input the process ends, and
with it every connection.

asyncio copies the data and stops reading from one side while the other side does not read, so a slow reader costs one
buffer and delays no other client. It needs nothing but the standard library, because it starts in every node of a lab.
"""

import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from proxylab.accepting import REST_SECONDS, has_no_room
from proxylab.engines.embedded.userspace.balance import Endpoint, EndpointBalancer

_DIAL_SECONDS: Final = (0.25, 0.5, 1.0, 2.0)
"""How long each attempt to reach an endpoint may take."""

_BACKLOG: Final = 4096
_LONGEST_LINE: Final = 1 << 28
_LONGEST_DATAGRAM: Final = 65535
_AT_ONCE: Final = 64
_MOST_ROUNDS: Final = 1024
"""Of passing on, so that a flood of datagrams does not keep the engine waiting."""

Choose = Callable[[str, bool], Endpoint | None]
"""From the client's address, and whether the last choice failed, to an endpoint."""


class _Leg(asyncio.Protocol):
    """One of the two connections of a client. What it receives before the other one exists waits in ``_early``."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self._peer: _Leg | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - the loop makes these of sockets
        self.transport = transport

    def join(self, peer: "_Leg") -> None:
        """Begin to copy to ``peer``; both legs must join each other."""
        self._peer = peer
        early, self._early = self._early, b""
        if early:
            self.data_received(early)
        if self.ended:
            self.eof_received()
        if self.transport is None or self.transport.is_closing():
            peer.close()
        else:
            self.transport.resume_reading()

    def close(self) -> None:
        """Send what is left, then close."""
        if self.transport is not None:
            self.transport.close()

    def write(self, data: bytes) -> None:
        """Send data to the program at the other end."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """Send no more, and go on receiving."""
        if self.transport is not None and not self.transport.is_closing():
            with suppress(OSError):
                self.transport.write_eof()

    def read(self, *, go_on: bool) -> None:
        """Stop reading, or go on; either may be called twice."""
        if self.transport is None or self.transport.is_closing():
            return
        if go_on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            self._early += data
            self.read(go_on=False)
        else:
            self._peer.write(data)

    def eof_received(self) -> bool:
        """Pass a half-close on. Returns true to keep the other direction open."""
        self.ended = True
        peer = self._peer
        if peer is not None and peer.ended:
            self.close()
            peer.close()
        elif peer is not None:
            peer.end()
        return True

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer.read(go_on=False)

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._peer.read(go_on=True)

    def connection_lost(self, error: Exception | None) -> None:
        if self._peer is not None:
            self._peer.close()


class ProgramPort:
    """A listening TCP socket whose connections go on to endpoints.

    As in kube-proxy, one connection after the other looks for its endpoint. So no other connection takes the turn of an
    endpoint between two attempts, and an endpoint that does not answer delays all clients of the service port.
    """

    def __init__(self, listening: socket.socket, choose: Choose) -> None:
        self._choose = choose
        self._listening = listening
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()
        self._rest: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Begin to accept."""
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more. Connections under way go on, as in kube-proxy."""
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._rest is not None:
            self._rest.cancel()
        self._listening.close()

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BACKLOG):
            try:
                connection, _ = self._listening.accept()
            except OSError as error:  # none is left, or the one that waited has failed
                if has_no_room(error):
                    loop.remove_reader(self._listening)
                    self._rest = loop.call_later(REST_SECONDS, loop.add_reader, self._listening, self._accept)
                return
            connection.setblocking(False)
            self._go_on(loop.connect_accepted_socket(self._accepted, connection))

    def _go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accepted(self) -> _Leg:
        leg = _Leg()
        asyncio.get_running_loop().call_soon(lambda: self._go_on(self._connect(leg)))
        return leg

    async def _connect(self, leg: _Leg) -> None:
        """Open the second leg; close the first one where no endpoint answers."""
        transport = leg.transport
        if transport is None:
            return
        async with self._turn:
            far = await self._reached(transport.get_extra_info("peername")[0])
        if far is None:
            leg.close()
            return
        leg.join(far)
        far.join(leg)

    async def _reached(self, client: str) -> _Leg | None:
        """A connection to an endpoint; ``None`` where no attempt succeeds."""
        for attempt, seconds in enumerate(_DIAL_SECONDS):
            endpoint = self._choose(client, attempt > 0)
            if endpoint is None:
                return None
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds):
                    _, far = await asyncio.get_running_loop().create_connection(_Leg, *endpoint)
                return far
        return None


class UdpPort:
    """A UDP socket, and a socket towards an endpoint for each client that is not idle.

    Args:
        listening: the socket that clients reach.
        choose: chooses the endpoint of a client.
        idle: seconds without a datagram in either direction after which the client is forgotten.
    """

    def __init__(self, listening: socket.socket, choose: Choose, idle: float) -> None:
        self.discarded = 0
        self._choose = choose
        self._listening = listening
        self._idle = idle
        self._clients: dict[tuple[Any, ...], tuple[socket.socket, asyncio.TimerHandle]] = {}

    async def begin(self) -> None:
        """Begin to receive."""
        asyncio.get_running_loop().add_reader(self._listening, self._from_clients)

    def close(self) -> None:
        """Close the socket and forget all clients."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        for client in tuple(self._clients):
            self._forget(client)

    def drain(self) -> None:
        """Pass on all that has come, in both directions."""
        for _ in range(_MOST_ROUNDS):
            served = [self._from_clients(), *(self._from_endpoint(*each) for each in self._far_ends())]
            if not any(served):
                return

    def _far_ends(self) -> list[tuple[tuple[Any, ...], socket.socket]]:
        return [(client, far) for client, (far, _) in self._clients.items()]

    def _from_clients(self) -> bool:
        """Pass on some datagrams. Returns whether more may be there."""
        for _ in range(_AT_ONCE):
            try:
                datagram, client = self._listening.recvfrom(_LONGEST_DATAGRAM)
            except OSError:
                return False
            far = self._far_of(client)
            if far is None:
                self.discarded += 1
                continue
            try:
                far.send(datagram)
            except OSError:  # it reports what became of an earlier datagram, and this one is not sent
                self.discarded += 1
            self._keep(client, far)
        return True

    def _far_of(self, client: tuple[Any, ...]) -> socket.socket | None:
        known = self._clients.get(client)
        if known is not None:
            return known[0]
        endpoint = self._choose(client[0], False)
        if endpoint is None:
            return None
        try:
            far = socket.socket(self._listening.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor is left
            return None
        try:
            far.connect(endpoint)
        except OSError:
            far.close()
            return None
        asyncio.get_running_loop().add_reader(far, self._from_endpoint, client, far)
        return far

    def _keep(self, client: tuple[Any, ...], far: socket.socket) -> None:
        """Start the idle time of a client again."""
        known = self._clients.get(client)
        if known is not None:
            known[1].cancel()
        self._clients[client] = far, asyncio.get_running_loop().call_later(self._idle, self._forget, client)

    def _from_endpoint(self, client: tuple[Any, ...], far: socket.socket) -> bool:
        """Pass on some answers. Returns whether more may be there."""
        for _ in range(_AT_ONCE):
            try:
                datagram = far.recv(_LONGEST_DATAGRAM)
            except BlockingIOError:
                return False
            except OSError:  # the endpoint refused an earlier datagram (ip(7)); kube-proxy ends the exchange, too
                self._forget(client)
                return False
            with suppress(OSError):
                self._listening.sendto(datagram, client)
            self._keep(client, far)
        return True

    def _forget(self, client: tuple[Any, ...]) -> None:
        far, timer = self._clients.pop(client)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(far)
        far.close()


def _opened(address: str, port: int, kind: int) -> socket.socket:
    """A bound socket, which listens if it is TCP. Raises ``OSError``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        if kind == socket.SOCK_STREAM:
            made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


class _Served:
    """One service port: its balancer, its socket, and the socket that keeps others off its node port."""

    def __init__(self, listen: str, protocol: str, idle: float) -> None:
        self._kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
        self._listen = listen
        self.balancer = EndpointBalancer()
        listening = _opened(listen, 0, self._kind)
        self.port: int = listening.getsockname()[1]
        udp = self._kind == socket.SOCK_DGRAM
        self.accepting = UdpPort(listening, self._choose, idle) if udp else ProgramPort(listening, self._choose)
        self._node_port = 0
        self._claim: socket.socket | None = None

    def _choose(self, client: str, failed: bool) -> Endpoint | None:
        return self.balancer.choose(client, time.monotonic(), failed=failed)

    def claim(self, node_port: int) -> None:
        """Keep other programs off that node port, whose packets the rules lead here. Raises ``OSError``."""
        if node_port != self._node_port:
            self.release()
            self._claim = _opened(self._listen, node_port, self._kind) if node_port else None
            self._node_port = node_port

    def release(self) -> None:
        """Give the node port up."""
        if self._claim is not None:
            self._claim.close()
        self._claim, self._node_port = None, 0

    def close(self) -> None:
        """Serve no more."""
        self.accepting.close()
        self.release()


async def _follow(served: dict[str, _Served], order: Mapping[str, Any], listen: str, idle: float) -> dict[str, Any]:
    """Obey one order of the engine; returns the answer."""
    failed: dict[str, str] = {}
    for key in order["close"]:
        if key in served:
            served.pop(key).close()
    for key, wanted in order["serve"].items():
        try:
            if key not in served:
                made = _Served(listen, wanted["protocol"], idle)
                await made.accepting.begin()
                served[key] = made
            affinity = wanted["affinity"]
            served[key].balancer.update([(ip, port) for ip, port in wanted["endpoints"]], affinity)
            served[key].balancer.forget(time.monotonic())
            served[key].claim(wanted["node_port"])
        except OSError as error:
            failed[key] = str(error)
    udp = {key: each.accepting for key, each in served.items() if isinstance(each.accepting, UdpPort)}
    for port in udp.values():
        port.drain()
    return {
        "number": order["number"],
        "ports": {key: each.port for key, each in served.items()},
        "failed": failed,
        "discarded": {key: port.discarded for key, port in udp.items()},
    }


async def serve(channel: socket.socket, listen: str, idle: float) -> None:
    """Follow the engine's orders until it closes the channel."""
    reader, writer = await asyncio.open_connection(sock=channel, limit=_LONGEST_LINE)
    served: dict[str, _Served] = {}
    try:
        while line := await reader.readline():
            answer = await _follow(served, json.loads(line), listen, idle)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
    finally:
        for each in served.values():
            each.close()
        writer.close()


def _main(listen: str, idle: str) -> None:
    # Every connection takes two descriptors.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with socket.socket(fileno=os.dup(0)) as channel:
        channel.setblocking(False)
        asyncio.run(serve(channel, listen, float(idle)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
