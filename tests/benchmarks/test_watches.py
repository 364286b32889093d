"""How long a change takes to reach five hundred watches.

The floor is one send to each of as many clients, measured in the same run.
"""

import asyncio
import resource
import socket
import time
from collections.abc import Callable, Iterator
from statistics import median

import pytest
from msgspec.structs import replace

from proxylab.cluster.objects import Service
from proxylab.cluster.store import Store
from proxylab.control import apiserver
from proxylab.kernel.sandbox.limits import raise_descriptor_limit
from proxylab.kernel.sandbox.netns import NetNs

pytestmark = pytest.mark.benchmark

WATCHES, ROUNDS = 500, 20
AT_MOST = 0.025  # seconds, on two cores

WATCH = b"GET /api/v1/services?watch=true&labelSelector=%21service-proxy-name HTTP/1.1\r\nHost: n\r\n\r\n"


class Reader(asyncio.Protocol):
    """A client that waits for a text."""

    def expect(self, text: bytes) -> asyncio.Future[float]:
        """The time at which the text has come."""
        self.text, self.read = text, b""
        self.heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        return self.heard

    def data_received(self, data: bytes) -> None:
        self.read += data
        if self.text in self.read and not self.heard.done():
            self.heard.set_result(time.perf_counter())


async def seconds(readers: list[Reader], say: Callable[[int], object]) -> float:
    """The median time from ``say`` to the last byte that the last reader waits for."""
    took = []
    for number in range(ROUNDS):
        waiting = [reader.expect(b'"n":"%d"' % number) for reader in readers]
        began = time.perf_counter()
        say(number)
        took.append(max(await asyncio.gather(*waiting)) - began)
    return median(took)


async def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    loop, store = asyncio.get_running_loop(), Store()
    echo = Service(name="echo")
    store.apply(echo)
    listening, plain = (socket.create_server(("127.0.0.1", 0), backlog=WATCHES) for _ in range(2))
    listening.setblocking(False)
    monkeypatch.setattr(apiserver, "listen_inside", lambda *_: listening)
    server = apiserver.ApiServer(store)
    await server.listen(NetNs("node-a", -1))
    watching, reading, sending = [], [], []
    for _ in range(WATCHES):
        transport, reader = await loop.create_connection(Reader, *listening.getsockname())
        begun = reader.expect(b'"name":"echo"')
        transport.write(WATCH)
        await begun
        watching.append(reader)
        reading.append((await loop.create_connection(Reader, *plain.getsockname()))[1])
        sending.append(plain.accept()[0])
    ours = await seconds(watching, lambda number: store.apply(replace(echo, annotations={"n": str(number)})))
    floor = await seconds(reading, lambda number: [each.send(b'"n":"%d"' % number) for each in sending])
    await server.close()
    for each in (plain, *sending):
        each.close()
    return ours, floor


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.budget
@pytest.mark.usefixtures("many_descriptors")
def test_a_change_reaches_five_hundred_watches(
    monkeypatch: pytest.MonkeyPatch, record_testsuite_property: Callable[[str, object], None]
) -> None:
    ours, floor = asyncio.run(measured(monkeypatch))
    record_testsuite_property("one change to 500 watches, floor, ms", f"{ours * 1e3:.1f}, {floor * 1e3:.1f}")
    print(f"500 watches: {ours * 1e3:.1f} ms, floor {floor * 1e3:.1f} ms")  # noqa: T201
    assert ours <= AT_MOST
