"""The API server over sockets of this process: many clients, rude ones among them, and none disturbs another."""

import asyncio
import json
import os
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from local_listener import listen_here
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.objects import Service, ServicePort
from proxylab.cluster.store import Store
from proxylab.control import apiserver
from proxylab.control.apiserver import ApiServer
from proxylab.kernel.sandbox.limits import raise_descriptor_limit
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.timing import Deadline, wait_until

ECHO = Service(
    name="echo",
    cluster_ips=(ip_address("10.96.0.10"),),
    ip_families=(Family.IPV4,),
    ports=(ServicePort(port=80, target_port=8080),),
)
WATCH = "/api/v1/services?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


class Client:
    """One connection, read as chunked JSON lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, target: str) -> None:
        self.writer.write(f"GET {target} HTTP/1.1\r\nHost: api\r\n\r\n".encode())
        await self.writer.drain()

    async def head(self) -> str:
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)).decode()

    async def event(self) -> Any:
        """The next line of a watch, whichever way it was put into chunks."""
        line = b""
        while not line.startswith(b"{"):
            line = await asyncio.wait_for(self.reader.readline(), 5)
            assert line, "the watch ended"
        return json.loads(line)


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Store, Callable[[], Awaitable[Client]]]]:
    store = Store()
    store.apply(ECHO)
    server = ApiServer(store)
    listening = listen_here(600)
    address = listening.getsockname()
    monkeypatch.setattr(apiserver, "listen_inside", lambda *_: listening)
    await server.listen(NetNs("node-a", -1))
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection(*address, limit=1 << 20)))
        return clients[-1]

    try:
        yield store, connect
    finally:
        await asyncio.wait_for(server.close(), 5)
        for client in clients:
            client.writer.transport.abort()


def open_sockets() -> int:
    """How many sockets this process has."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            links.append(os.readlink(descriptor))
    return sum(link.startswith("socket:") for link in links)


def run(story: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell() -> None:
        async with served(monkeypatch) as (store, connect):
            await story(store, connect)

    asyncio.run(tell())


def test_a_watch_tells_changes_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(WATCH)
        assert "HTTP/1.1 200" in await client.head()
        assert [(await client.event())["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
        for number in range(3):
            store.apply(replace(ECHO, annotations={"n": str(number)}))
            event = await client.event()
            assert (event["type"], event["object"]["metadata"]["annotations"]) == ("MODIFIED", {"n": str(number)})

    run(story, monkeypatch)


def test_a_watch_ends_when_its_time_is_over_and_the_connection_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(f"{WATCH}&timeoutSeconds=0")
        await client.head()
        rest = await asyncio.wait_for(client.reader.readuntil(b"0\r\n\r\n"), 5)
        assert b'"BOOKMARK"' in rest
        await client.ask("/api/v1/services")
        assert "HTTP/1.1 200" in await client.head()

    run(story, monkeypatch)


def test_a_watch_ends_with_a_bookmark_that_says_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask("/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=1")
        await client.head()
        revision = store.apply(replace(ECHO, annotations={"not": "a node"}))
        event = await client.event()
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "Node")
        assert event["object"]["metadata"]["resourceVersion"] == str(revision)

    run(story, monkeypatch)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Those of both ends of five hundred connections, where a shell's limit is the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_five_hundred_watches_hear_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        clients = [await connect() for _ in range(500)]
        for client in clients:
            await client.ask(WATCH)
        for client in clients:
            await client.head()
            await client.event()
            await client.event()
        store.apply(replace(ECHO, annotations={"n": "1"}))
        kinds = await asyncio.gather(*(client.event() for client in clients))
        assert {event["type"] for event in kinds} == {"MODIFIED"}

    run(story, monkeypatch)


def test_clients_that_do_not_read_cost_one_piece_each_and_are_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    from proxylab.control import http_server

    monkeypatch.setattr(http_server, "_STALLED", 1.0)
    stalled, changes, size = 20, 200, 100_000

    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        reading = await connect()
        await reading.ask(WATCH)
        await reading.head()
        assert [(await reading.event())["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
        opened = open_sockets()
        for client in [await connect() for _ in range(stalled)]:
            client.writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await client.ask(WATCH)
        tracemalloc.start()
        for number in range(changes):
            store.apply(replace(ECHO, annotations={"n": str(number), "long": "x" * size}))
            assert (await reading.event())["object"]["metadata"]["annotations"]["n"] == str(number)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # The history, the encoded documents, and less than ten changes for each client.
        assert peak < (2 * changes + 10 * stalled) * size
        await wait_until(lambda: open_sockets() == opened + stalled, Deadline.after(5), "the end of their connections")
        store.apply(ECHO)
        assert (await reading.event())["type"] == "MODIFIED"

    run(story, monkeypatch)


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x00\xff", b"GET\r\n\r\n", b"A" * 200_000, b"POST /apis HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"],
    ids=["TLS", "half a line", "no end", "half a body"],
)
def test_garbage_disturbs_no_other_client(monkeypatch: pytest.MonkeyPatch, garbage: bytes) -> None:
    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        good, rude = await connect(), await connect()
        await good.ask(WATCH)
        await good.head()
        rude.writer.write(garbage)
        await good.event()
        await good.event()
        store.apply(replace(ECHO, annotations={"n": "1"}))
        assert (await good.event())["type"] == "MODIFIED"

    run(story, monkeypatch)


def test_a_body_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(b"POST /apis HTTP/1.1\r\nHost: api\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 1_200_000)
        assert "HTTP/1.1 413" in await client.head()

    run(story, monkeypatch)


def test_the_server_closes_its_end_when_a_client_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: Store, connect: Callable[[], Awaitable[Client]]) -> None:
        opened = open_sockets()
        client = await connect()
        await client.ask(WATCH)
        await client.head()
        client.writer.close()
        await wait_until(lambda: open_sockets() == opened, Deadline.after(5), "the end of both sockets")
        store.apply(replace(ECHO, annotations={"n": "1"}))

    run(story, monkeypatch)
