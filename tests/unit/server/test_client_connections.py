"""Clients of a detached lab: no client harms another one, or the lab."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest

from proxylab.errors import InternalError
from proxylab.protocol.channel import AsyncChannel, _frame
from proxylab.protocol.faults import error_of, fault_of
from proxylab.protocol.messages import AnyResponse, Dump, Failed, Request, Response, response_to
from proxylab.protocol.standing_labs import AnyRequest, Ended, Feed, FeedAnswer, Lines, Log, Signal
from proxylab.server.client_connections import accept_clients, serve_client
from proxylab.timing import Deadline, wait_until

RESPONSE = response_to(Dump)


class RequestHandler:
    """Answers ``Dump`` when it is let, fails with ``Dump("broken")``, and feeds until a signal comes."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.begun = asyncio.Event()
        self.finished: list[str] = []

    async def answer(self, request: AnyRequest) -> AnyResponse:
        assert isinstance(request, Dump)
        self.begun.set()
        if request.node == "broken":
            raise RuntimeError("an unforeseen case")
        await self.let.wait()
        self.finished.append(request.node)
        return Response(request.node)

    async def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[FeedAnswer, None]:
        try:
            yield Lines((f"{len(descriptors)} came along",))
            yield Ended((await signals.get()).number)
        finally:
            self.finished.append("feed")
            for each in descriptors:
                os.close(each)


def visited(
    tmp_path: Path, script: Callable[[RequestHandler, Callable[[], socket.socket]], Awaitable[None]]
) -> RequestHandler:
    """Let clients connect to a handler, as the script says."""

    async def play() -> RequestHandler:
        handler = RequestHandler()
        with socket.socket(socket.AF_UNIX) as control_socket:
            control_socket.bind(str(tmp_path / "door"))
            control_socket.listen()

            def connect() -> socket.socket:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(tmp_path / "door"))
                return connection

            receiving = asyncio.create_task(accept_clients(control_socket, handler))
            try:
                async with asyncio.timeout(10):
                    await script(handler, connect)
            finally:
                receiving.cancel()
                with suppress(asyncio.CancelledError):
                    await receiving
        return handler

    return asyncio.run(play())


def test_what_a_visitor_has_begun_is_finished_when_it_goes(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        visitor = AsyncChannel(connect())
        await visitor.send(Dump("node-a"))
        await handler.begun.wait()
        visitor.close()
        for _ in range(50):  # turns of the loop: enough to hear of it, and to drop what is under way
            await asyncio.sleep(0)
        handler.let.set()
        other = AsyncChannel(connect())
        await other.send(Dump("node-b"))
        assert await other.receive(RESPONSE) == Response("node-b")
        other.close()

    assert visited(tmp_path, script).finished == ["node-a", "node-b"]


def test_an_internal_error_reaches_its_client_and_ends_no_other_connection(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        visitor = AsyncChannel(connect())
        await visitor.send(Dump("broken"))
        failed = await visitor.receive(RESPONSE)
        assert isinstance(failed, Failed)
        assert "an unforeseen case" in failed.fault.words[0]
        await visitor.send(Dump("node-a"))
        assert await visitor.receive(RESPONSE) == Response("node-a")
        visitor.close()

    visited(tmp_path, script)


@pytest.mark.parametrize("goes", [True, False], ids=["goes", "says so"])
def test_a_stream_ends_with_its_visitor_or_by_a_signal(tmp_path: Path, *, goes: bool) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        connection = connect()
        from proxylab.protocol.channel import Channel
        from proxylab.timing import Deadline

        with open(os.devnull) as nothing:
            Channel(connection).send(Log("node-a"), Deadline.after(5), (nothing.fileno(), nothing.fileno()))
        visitor = AsyncChannel(connection)
        assert await visitor.receive(FeedAnswer) == Lines(("2 came along",))
        if not goes:
            await visitor.send(Signal(15))
            assert await visitor.receive(FeedAnswer) == Ended(15)
        visitor.close()
        while not handler.finished:
            await asyncio.sleep(0.001)

    assert visited(tmp_path, script).finished == ["feed"]


def test_what_is_no_message_ends_only_the_line_that_it_comes_by(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        for nonsense in (b"\0\0\0\4null", b'\0\0\0\6{"is":', b"\xff\xff\xff\xff", b"\0"):
            rude = connect()
            rude.sendall(nonsense)
            if len(nonsense) < 4:
                rude.close()
                continue
            rude.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(rude, 1) == b""
            rude.close()
        visitor = AsyncChannel(connect())
        await visitor.send(Dump("node-a"))
        assert await visitor.receive(RESPONSE) == Response("node-a")
        visitor.close()

    visited(tmp_path, script)


def test_every_request_of_the_protocol_may_be_asked() -> None:
    assert {*Request.__subclasses__()} == {each for each in get_args(AnyRequest) if issubclass(each, Request)}


class Tidy(RequestHandler):
    """Fails where it puts things in order after it was cancelled, as a lab does whose launcher has ended."""

    async def answer(self, request: AnyRequest) -> AnyResponse:
        try:
            return await super().answer(request)
        except asyncio.CancelledError:
            return Failed(fault_of(InternalError("nothing can be put in order")))


class Busy(RequestHandler):
    """Its answer runs at each turn of the event loop, so it hears of a cancellation before a task that waits does."""

    async def answer(self, request: AnyRequest) -> AnyResponse:
        self.begun.set()
        try:
            while True:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            return Failed(fault_of(InternalError("nothing can be put in order")))


@pytest.mark.parametrize("handler_type", [Tidy, Busy])
def test_a_conversation_ends_when_an_error_takes_the_place_of_its_cancellation(
    handler_type: type[RequestHandler],
) -> None:
    async def play() -> None:
        handler = handler_type()
        ours, theirs = socket.socketpair()
        client = AsyncChannel(ours)
        conversing = asyncio.create_task(serve_client(AsyncChannel(theirs), handler))
        await client.send(Dump("node-a"))
        await handler.begun.wait()
        conversing.cancel()
        done, _ = await asyncio.wait([conversing], timeout=5)
        client.close()
        theirs.close()
        assert done

    asyncio.run(play())


async def asked(connect: Callable[[], socket.socket]) -> tuple[AsyncChannel, AnyResponse]:
    """A client that has asked something, and the answer."""
    client = AsyncChannel(connect())
    await client.send(Dump("node-a"))
    return client, await client.receive(RESPONSE)


def test_clients_that_ask_nothing_take_no_places(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        silent = [connect() for _ in range(100)]
        slow = connect()
        slow.send(b"\0")  # the first byte of a request
        client, answer = await asked(connect)
        assert answer == Response("node-a")
        for each in (*silent, slow, client):
            each.close()

    visited(tmp_path, script)


def test_one_client_too_many_is_refused_at_once_with_the_number(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        clients = [(await asked(connect))[0] for _ in range(64)]
        refused, answer = await asked(connect)
        assert isinstance(answer, Failed)
        assert "the lab serves 64 clients already" in str(error_of(answer.fault))
        clients.pop().close()
        refused.close()
        for _ in range(50):  # turns of the loop: enough to hear of it
            await asyncio.sleep(0)
        last, answer = await asked(connect)
        assert answer == Response("node-a"), "a place is free again"
        for each in (*clients, last):
            each.close()

    visited(tmp_path, script)


def test_a_client_that_reads_no_answers_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        flooding = connect()
        flooding.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                flooding.send(_frame(Dump("x" * 10_000)))
        client, answer = await asked(connect)
        assert answer == Response("node-a")
        flooding.close()
        client.close()

    visited(tmp_path, script)


def test_without_a_free_descriptor_one_silent_client_makes_room_for_the_next(tmp_path: Path) -> None:
    async def script(handler: RequestHandler, connect: Callable[[], socket.socket]) -> None:
        handler.let.set()
        asking = AsyncChannel(connect())
        await asking.send(Dump("first"))
        assert await asking.receive(RESPONSE) == Response("first")
        silent = [connect() for _ in range(5)]
        for client in silent:
            client.setblocking(False)
        await until(lambda: len(os.listdir("/proc/self/fd")) >= len(before) + 2 * 6, "the lab to take them")
        further = socket.socket(socket.AF_UNIX)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(each) for each in os.listdir("/proc/self/fd"))
        gaps = []
        while (gap := os.dup(further.fileno())) < highest:
            gaps.append(gap)
        os.close(gap)
        resource.setrlimit(resource.RLIMIT_NOFILE, (gap, hard))
        try:
            further.connect(str(tmp_path / "door"))
            late = AsyncChannel(further)
            await late.send(Dump("late"))
            assert await late.receive(RESPONSE) == Response("late")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in gaps:
                os.close(each)
        assert [is_hung_up(each) for each in silent] == [True, False, False, False, False]
        for connection in (asking, late, *silent):
            connection.close()

    def is_hung_up(client: socket.socket) -> bool:
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False

    async def until(holds: Callable[[], bool], what: str) -> None:
        await wait_until(holds, Deadline.after(5), what)

    before = os.listdir("/proc/self/fd")
    visited(tmp_path, script)
