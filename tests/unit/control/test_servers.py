"""The servers of a node over sockets of this process."""

import asyncio
import socket
from collections.abc import Sequence
from errno import EADDRINUSE, EAFNOSUPPORT
from ipaddress import IPv4Address

import pytest
from local_listener import listen_here

from proxylab.control.http_server import HttpResponse, NodeServers, PathHandler
from proxylab.kernel.sandbox.netns import NetNs

PLACE = (IPv4Address("127.0.0.1"), 10256)


def saying(status: int) -> PathHandler:
    return lambda _path: HttpResponse(status)


def statuses(monkeypatch: pytest.MonkeyPatch, handlers: Sequence[PathHandler]) -> list[bytes]:
    """What one place answers while it is served by each of these in turn."""
    listening = listen_here()
    monkeypatch.setattr("proxylab.control.http_server.listen_inside", lambda *_: listening)

    async def scenario() -> list[bytes]:
        servers = NodeServers(NetNs("node-a", -1))
        said = []
        for handler in handlers:
            assert await servers.serve({PLACE: handler}) == ()
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
            said.append((await asyncio.wait_for(reader.read(), 5)).split()[1])
            writer.close()
            await writer.wait_closed()
        await servers.close()
        return said

    return asyncio.run(scenario())


def test_an_address_that_passes_to_another_server_stays_open_and_answers_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert statuses(monkeypatch, [saying(200), saying(404)]) == [b"200", b"404"]


@pytest.mark.parametrize(
    ("error", "lines"), [(EAFNOSUPPORT, ()), (EADDRINUSE, ("cannot listen on 127.0.0.1 port 10256: Taken",))]
)
def test_a_place_of_a_family_that_the_kernel_lacks_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, error: int, lines: tuple[str, ...]
) -> None:
    def listen(*_: object) -> None:
        raise OSError(error, "Taken")

    monkeypatch.setattr("proxylab.control.http_server.listen_inside", listen)
    assert asyncio.run(NodeServers(NetNs("node-a", -1)).serve({PLACE: saying(200)})) == lines


@pytest.mark.parametrize("turns", range(5))
def test_servers_whose_closing_is_cancelled_leave_no_socket_open(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """As when the proxies of two nodes fail: the first failure cancels what the other one's failure has begun."""
    made: list[socket.socket] = []

    def listen(*_: object) -> socket.socket:
        made.append(listen_here())
        return made[-1]

    async def scenario() -> list[int]:
        servers = NodeServers(NetNs("node-a", -1))
        await servers.serve({PLACE: saying(200), (PLACE[0], 10249): saying(200)})
        closing = asyncio.create_task(servers.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await servers.close()  # as a fleet does that stops after a failed start
        return [each.fileno() for each in made]

    monkeypatch.setattr("proxylab.control.http_server.listen_inside", listen)
    assert asyncio.run(scenario()) == [-1, -1]
