"""Each accept loop of the lab, where no descriptor is left for the connection that waits: it rests, and accepts later.

A loop that does not rest turns without end: the listening socket stays readable.
"""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from proxylab.accepting import accepted, has_no_room
from proxylab.addresses import Protocol
from proxylab.control.http_server import HttpResponse, HttpServer
from proxylab.control.kubernetes.accepted_sockets import AcceptedSockets
from proxylab.engines.embedded.userspace.program import ProgramPort
from proxylab.guest.line import Line
from proxylab.guest.outside import accept_later_clients
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Listener, Plan, PlannedNamespace, Role
from proxylab.timing import Deadline
from proxylab.traffic.responder import Responders

WITHOUT_SECONDS = 0.5
MOST_ATTEMPTS = 8
"""One each tenth of a second. A loop that does not rest makes thousands, and hundreds on a busy machine."""

SOON = 10.0


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The errors of accept(2)."""
    found: list[int] = []
    accept = socket.socket.accept

    def counted(listening: socket.socket) -> tuple[socket.socket, Any]:
        try:
            return accept(listening)
        except BlockingIOError:
            raise
        except OSError as error:
            found.append(error.errno or 0)
            raise

    monkeypatch.setattr(socket.socket, "accept", counted)
    return found


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """None can be opened meanwhile: the limit is the lowest free number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def listening_socket() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.setblocking(False)
    return made


@asynccontextmanager
async def http_server(_: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    listening = listening_socket()
    address = listening.getsockname()
    server = HttpServer(listening, lambda _: HttpResponse(200))
    yield address
    await server.close()


@asynccontextmanager
async def accepted_sockets(_: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    async def answer(connection: socket.socket) -> None:
        connection.send(b"hello")

    listening = listening_socket()
    address = listening.getsockname()
    served = AcceptedSockets(listening, answer)
    yield address
    await served.close()


@asynccontextmanager
async def responder(patch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    patch.setattr("proxylab.traffic.responder.inside", lambda _: nullcontext())
    with listening_socket() as found:
        address = found.getsockname()
    listener = Listener("echo", Protocol.TCP, address[1], ip_address("127.0.0.1"))
    pod = PlannedNamespace(name="echo", role=Role.POD, listeners=(listener,))
    responders = Responders({"echo": NetNs("echo", -1)}, Plan(namespaces=(pod,), links=(), pods=()))
    responders.attach(asyncio.get_running_loop())
    yield address
    responders.close()


@asynccontextmanager
async def proxy_program(_: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    listening = listening_socket()
    port = ProgramPort(listening, lambda client, again: None)  # without an endpoint it closes the connection
    await port.begin()
    yield listening.getsockname()
    port.close()


LOOPS = [http_server, accepted_sockets, responder, proxy_program]


@pytest.mark.parametrize("loop_of", LOOPS, ids=lambda each: each.__name__)
def test_a_loop_without_descriptors_rests_and_accepts_later(
    loop_of: Callable[[pytest.MonkeyPatch], AbstractAsyncContextManager[tuple[str, int]]],
    monkeypatch: pytest.MonkeyPatch,
    attempts: list[int],
) -> None:
    async def script() -> None:
        loop = asyncio.get_running_loop()
        async with loop_of(monkeypatch) as address:
            with socket.socket() as client:
                client.setblocking(False)
                with no_descriptor_left():
                    await loop.sock_connect(client, address)
                    await loop.sock_sendall(client, b"GET /hostname HTTP/1.1\r\nHost: echo\r\n\r\n")
                    await asyncio.sleep(WITHOUT_SECONDS)
                with suppress(ConnectionResetError):
                    async with asyncio.timeout(SOON):
                        await loop.sock_recv(client, 1)  # an answer, or the end of the connection

    asyncio.run(script())
    expect_rests(attempts)


def expect_rests(attempts: list[int]) -> None:
    assert 0 < len(attempts) <= MOST_ATTEMPTS
    assert set(attempts) == {errno.EMFILE}


def test_a_standing_lab_without_descriptors_rests_and_accepts_later(tmp_path: Path, attempts: list[int]) -> None:
    """Its clients are held to more in ``tests/unit/server``."""

    async def script() -> None:
        with socket.socket(socket.AF_UNIX) as control_socket, socket.socket(socket.AF_UNIX) as client:
            control_socket.bind(str(tmp_path / "socket"))
            control_socket.listen()
            control_socket.setblocking(False)
            serving = asyncio.create_task(accepted(control_socket))
            with no_descriptor_left():
                client.connect(str(tmp_path / "socket"))
                await asyncio.sleep(WITHOUT_SECONDS)
            (await asyncio.wait_for(serving, SOON)).close()

    asyncio.run(script())
    expect_rests(attempts)


def test_the_relay_of_a_guest_without_descriptors_rests_and_accepts_later(tmp_path: Path, attempts: list[int]) -> None:
    brought: list[socket.socket] = []

    def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        brought.append(ours)
        return theirs

    ends = socket.socketpair()
    outside, inside = Line(ends[0].fileno()), Line(ends[1].fileno(), connect)

    def relay(seconds: float, until: Callable[[], bool]) -> None:
        deadline = Deadline.after(seconds)
        while not deadline.passed and not until():
            for line in (outside, inside):
                with suppress(TimeoutError):
                    line.hear(Deadline.after(WITHOUT_SECONDS / 10))

    with socket.socket(socket.AF_UNIX) as control_socket, socket.socket(socket.AF_UNIX) as client:
        control_socket.bind(str(tmp_path / "socket"))
        control_socket.listen()
        accept_later_clients(control_socket, outside)
        with no_descriptor_left():
            client.connect(str(tmp_path / "socket"))
            relay(WITHOUT_SECONDS, lambda: bool(brought))
            assert brought == []
        expect_rests(attempts)
        relay(SOON, lambda: bool(brought))
        (server,) = brought
        server.setblocking(False)
    relay(SOON, lambda: ended(server))  # so that both relays have closed their ends
    for each in (*ends, server):
        each.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM], ids=errno.errorcode.get)
def test_each_lack_is_one_of_room(number: int) -> None:
    assert has_no_room(OSError(number, ""))
    assert not has_no_room(OSError(errno.ECONNABORTED, ""))


def test_a_socket_that_does_not_listen_is_no_lack() -> None:
    async def script() -> None:
        with socket.socket() as idle:
            idle.setblocking(False)
            await accepted(idle)

    with pytest.raises(OSError, match="Invalid argument"):
        asyncio.run(script())
