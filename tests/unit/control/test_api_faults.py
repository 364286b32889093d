"""Faults of the API server: what its clients see while it restarts, forgets its watches, or is slow."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, Final

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.objects import Service, ServicePort
from proxylab.cluster.store import Store
from proxylab.control import apiserver
from proxylab.control.apiserver import ApiServer
from proxylab.kernel.sandbox.netns import NetNs

ECHO: Final = Service(
    name="echo",
    cluster_ips=(ip_address("10.96.0.10"),),
    ip_families=(Family.IPV4,),
    ports=(ServicePort(port=80, target_port=8080),),
)
WATCH: Final = "/api/v1/services?watch=true&resourceVersion=1"
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """An API server with one object, and its clients. It always listens on the same port."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store()
        self.store.apply(ECHO)
        self.server = ApiServer(self.store)
        self._port = 0
        self._clients: list[asyncio.StreamWriter] = []
        monkeypatch.setattr(apiserver, "listen_inside", self._listen)

    def _listen(self, *_: object) -> socket.socket:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(("127.0.0.1", self._port))
        listening.listen(8)
        self._port = listening.getsockname()[1]
        return listening

    async def connect(self) -> _Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._clients.append(writer)
        return reader, writer

    async def watch(self) -> _Streams:
        """A watch under way, from where the store is now."""
        reader, writer = await self.connect()
        writer.write(f"GET {WATCH} HTTP/1.1\r\nHost: api\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert b"HTTP/1.1 200" in head
        return reader, writer

    async def close(self) -> None:
        await asyncio.wait_for(self.server.close(), 5)
        for writer in self._clients:
            writer.transport.abort()


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    there = Served(monkeypatch)
    await there.server.listen(NetNs("node-a", -1))
    try:
        yield there
    finally:
        await there.close()


def run(story: Callable[[Served], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell() -> None:
        async with served(monkeypatch) as there:
            await story(there)

    asyncio.run(tell())


async def event(reader: asyncio.StreamReader) -> Any:
    line = b""
    while not line.startswith(b"{"):
        line = await asyncio.wait_for(reader.readline(), 5)
        assert line, "the watch ended"
    return json.loads(line)


def test_a_server_that_restarts_breaks_watches_and_refuses_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(there: Served) -> None:
        reader, _ = await there.watch()
        await there.server.go_down()
        there.store.apply(replace(ECHO, annotations={"while": "down"}))
        with pytest.raises(ConnectionRefusedError):
            await there.connect()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readuntil(b"down"), 5)
        await there.server.come_up()
        again, _ = await there.watch()
        assert (await event(again))["object"]["metadata"]["annotations"] == {"while": "down"}

    run(story, monkeypatch)


def test_a_server_that_forgets_ends_each_watch_with_410(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(there: Served) -> None:
        watches = [await there.watch() for _ in range(3)]
        there.server.forget()
        for reader, _ in watches:
            line = await event(reader)
            assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
            assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5), "the watch is over"
        later, _ = await there.watch()
        there.store.apply(replace(ECHO, annotations={"n": "1"}))
        assert (await event(later))["type"] == "MODIFIED", "a watch from later is whole"

    run(story, monkeypatch)


def test_a_slow_server_holds_answers_and_events_back_until_it_is_prompt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(there: Served) -> None:
        reader, _ = await there.watch()
        there.server.hold_back(0.3)
        began = time.monotonic()
        there.store.apply(replace(ECHO, annotations={"n": "1"}))
        assert (await event(reader))["type"] == "MODIFIED"
        assert time.monotonic() - began >= 0.3
        began = time.monotonic()
        await there.watch()
        assert time.monotonic() - began >= 0.3
        there.server.hold_back(0)
        there.store.apply(replace(ECHO, annotations={"n": "2"}))
        assert (await event(reader))["type"] == "MODIFIED"

    run(story, monkeypatch)


def test_events_that_a_slow_server_holds_back_come_when_it_is_prompt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(there: Served) -> None:
        reader, _ = await there.watch()
        there.server.hold_back(3600)
        there.store.apply(replace(ECHO, annotations={"n": "1"}))
        there.server.hold_back(0)
        assert (await event(reader))["type"] == "MODIFIED"

    run(story, monkeypatch)
