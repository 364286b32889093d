"""Commands under way: ``Running``, with output line by line, and ``Attached``, on a client's streams.

``Launcher`` starts them. The output of ``Running`` comes through a pipe that the event loop empties, so a command may
run for days: memory holds only the unfinished line.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from proxylab.kernel.sandbox.stillness import are_still, are_stopped
from proxylab.text import printable
from proxylab.timing import Deadline, wait_until

_READ: Final = 65536
_LINE_LIMIT: Final = 65536


def how_it_ended(status: int) -> str:
    """What a ``status`` says of a command, as a clause without its subject."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"


class Running:
    """A command under way. Made by ``Launcher.start``.

    Args:
        output: the reading end of its pipe. This object closes it once the command has closed the writing end.
        heard: called with each line of its output, printable and without the newline.
        send_signal: sends a signal to its process group.
        processes: its processes that have not ended.

    Attributes:
        status: done when the command has ended: its exit code, or minus the number of the signal that killed it.
    """

    def __init__(
        self,
        output: int,
        heard: Callable[[str], None],
        status: "asyncio.Future[int]",
        send_signal: Callable[[int], None],
        processes: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._output = output
        self._heard = heard
        self._send_signal = send_signal
        self._processes = processes
        self._line = b""
        self._closed = asyncio.Event()
        self.status = status
        self.status.add_done_callback(_retrieve_exception)
        os.set_blocking(output, False)
        asyncio.get_running_loop().add_reader(output, self._read)

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended."""
        return self.status.done()

    def is_still(self, *, awaits_nothing: bool = False) -> bool:
        """Whether the command has nothing to do (``stillness``). Then ``heard`` has had all that it wrote so far."""
        if not are_still(self._processes(), awaits_nothing=awaits_nothing):
            return False
        if not self._closed.is_set():
            self._read()  # a pipe holds no more than one reading takes
        return True

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        self._send_signal(number)

    async def stop(self, deadline: Deadline) -> int:
        """Send SIGTERM, then SIGKILL at the deadline; read the rest of the output and return the status."""
        if not self.has_ended:
            self._send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(deadline.remaining):
                    await asyncio.shield(self.status)
            except TimeoutError:
                self._send_signal(signal.SIGKILL)
        status = await asyncio.shield(self.status)
        await self.drained()
        return status

    async def pause(self, deadline: Deadline) -> None:
        """Send SIGSTOP, and return when every thread is stopped or the command has ended. Raises ``TimeoutError``."""
        self._send_signal(signal.SIGSTOP)
        await wait_until(lambda: self.has_ended or are_stopped(self._processes()), deadline, "it is stopped")

    def resume(self) -> None:
        """Let the command go on after ``pause``."""
        self._send_signal(signal.SIGCONT)

    async def kill(self) -> int:
        """Send SIGKILL, read the rest of the output and return the status."""
        if not self.has_ended:
            self._send_signal(signal.SIGKILL)
        status = await asyncio.shield(self.status)
        await self.drained()
        return status

    async def drained(self) -> None:
        """Wait for the rest of the output, but at most a second for a child that keeps the pipe open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._closed.wait()
        self._close()

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return
        if not data:
            self._close()
            return
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LINE_LIMIT:
            lines, self._line = [*lines, self._line], b""
        for line in lines:
            self._hear(line)

    def _close(self) -> None:
        if self._closed.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        if self._line:
            self._hear(self._line)
        self._closed.set()

    def _hear(self, line: bytes) -> None:
        self._heard(printable(line.decode(errors="replace"), keep="\t"))


class Attached:
    """A command under way on a client's own standard streams. Made by ``Launcher.start_attached``.

    The arguments are as for ``Running``.
    """

    def __init__(
        self,
        status: "asyncio.Future[int]",
        send_signal: Callable[[int], None],
        processes: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.status = status
        self.send_signal = send_signal
        self._processes = processes
        self.status.add_done_callback(_retrieve_exception)

    def is_still(self, *, awaits_nothing: bool = False) -> bool:
        """Whether the command has nothing to do (``stillness``)."""
        return are_still(self._processes(), awaits_nothing=awaits_nothing)

    async def pause(self, deadline: Deadline) -> None:
        """Send SIGSTOP, and return when every thread is stopped or the command has ended. Raises ``TimeoutError``."""
        self.send_signal(signal.SIGSTOP)
        await wait_until(lambda: self.status.done() or are_stopped(self._processes()), deadline, "it is stopped")

    async def hang_up(self, deadline: Deadline) -> None:
        """Send SIGHUP, as a terminal does when its client has gone; kill the command at the deadline."""
        if self.status.done():
            return
        self.send_signal(signal.SIGHUP)
        self.send_signal(signal.SIGCONT)  # a stopped process would not act on SIGHUP
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.remaining):
                await asyncio.shield(self.status)
        self.send_signal(signal.SIGKILL)


def _retrieve_exception(status: "asyncio.Future[int]") -> None:
    """Mark an exception as retrieved: callers may ignore the status, and asyncio would log a warning."""
    if not status.cancelled():
        status.exception()
