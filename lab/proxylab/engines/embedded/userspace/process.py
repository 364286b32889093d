"""The engine's side of the proxy process: starts it in its node, gives it orders, and ends it.

Owns ``StartedProcess``. The launcher starts the process as it starts every command, so the process ends with the lab
whatever happens. Its standard input is one end of a socket pair. Closing the other end makes the process end by itself.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import proxylab
from proxylab.addresses import Family, IPAddress
from proxylab.encoding import decode, encode
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.userspace.writer import Answered, ProcessEndedError, ProcessPort
from proxylab.kernel.sandbox.running import Attached, how_it_ended
from proxylab.timing import Deadline, wait_until

_COMMAND: Final = (sys.executable, "-m", "proxylab.engines.embedded.userspace.program")
_LONGEST_ANSWER: Final = 1 << 28
_STOP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 1.0
_MOST_ERRORS: Final = 8192


class StartedProcess:
    """The proxy process of one family on the node of a context; implements ``ProxyProcess``."""

    def __init__(self, context: NodeContext, family: Family, listen: IPAddress | None, udp_idle_timeout: float) -> None:
        self._context = context
        self._idle = udp_idle_timeout
        self._listen = str(listen) if listen is not None else {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}[family]  # noqa: S104
        self._number = 0
        self._turn = asyncio.Lock()
        self._running: Attached | None = None
        self._errors = -1
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def runs(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._running is not None and not self._running.status.done()

    @property
    def ending(self) -> str:
        """How it has ended without being asked to; the next order starts another one."""
        if self._running is None or not self._running.status.done():
            return ""
        return f"its proxy process {how_it_ended(self._running.status.result())}"

    async def pause(self) -> None:
        """Stop it by SIGSTOP, and return when all its threads are stopped."""
        if self._running is not None:
            await self._running.pause(Deadline.after(_STOP_SECONDS))

    def resume(self) -> None:
        """Let it go on by SIGCONT."""
        if self._running is not None:
            self._running.send_signal(signal.SIGCONT)

    async def order(self, serve: Mapping[str, ProcessPort], close: Collection[str]) -> Answered:
        """Give it an order and wait for the answer. Raises ``ProcessEndedError``."""
        async with self._turn:
            return await self._order(serve, close)

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """Let it pass on what it has. Returns what it has discarded; ``None`` if it is not done in time.

        It passes datagrams on before it answers. Of its connections it has nothing to do any more once it is still and
        waits for no endpoint: one that waits for its turn has another one before it that waits for an endpoint.
        """
        if not self.runs:
            return {}
        deadline = Deadline.after(_DRAIN_SECONDS)
        try:
            async with asyncio.timeout(deadline.remaining):
                discarded = (await self.order({}, ())).discarded
            running = self._running
            if connections and running is not None:
                is_done = partial(running.is_still, awaits_nothing=True)
                await wait_until(is_done, deadline, "the proxy process has nothing to do")
        except ProcessEndedError:
            return {}
        except TimeoutError:
            return None
        return discarded

    async def _order(self, serve: Mapping[str, ProcessPort], close: Collection[str]) -> Answered:
        if not self.runs:
            await self.close()
            await self._start()
        if self._reader is None or self._writer is None:
            raise ProcessEndedError("it has no channel")
        self._number += 1
        self._writer.write(encode({"number": self._number, "serve": serve, "close": list(close)}) + b"\n")
        while True:
            try:
                await self._writer.drain()
                line = await self._reader.readline()
            except ConnectionError:
                line = b""
            if not line:
                raise ProcessEndedError(self._last_words())
            answered = decode(line, Answered)
            if answered.number == self._number:  # an earlier order may have been given up
                return answered

    async def close(self) -> None:
        """End it, and every connection that it has."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
        running, self._running, self._reader, self._writer = self._running, None, None, None
        if running is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(Deadline.after(_STOP_SECONDS).remaining):
                    await asyncio.shield(running.status)
            running.send_signal(signal.SIGKILL)
            await asyncio.shield(running.status)
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        try:
            self._running = await self._context.launcher.start_attached(
                self._context.netns,
                (*_COMMAND, self._listen, str(self._idle)),
                netns_name=self._context.name,
                standard=(theirs.fileno(), self._errors, self._errors),
                environment={"PYTHONPATH": str(Path(proxylab.__file__).parents[1])},
            )
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_ANSWER)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def _last_words(self) -> str:
        return os.pread(self._errors, _MOST_ERRORS, 0).decode(errors="replace") if self._errors >= 0 else ""
