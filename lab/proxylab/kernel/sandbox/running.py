"""A command that runs on in a place.

Owns: ``Running``: its output, line by line, its end, and the signals it is sent; and ``Attached``, whose output is none
of ours.
Must not: start it (``kernel.launcher`` does).

Its output comes through a pipe that the event loop empties, so it may run for days: nothing is kept here but the line
that is being written.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proxylab.timing import Deadline

__all__ = ["Attached", "Running"]

_READ: Final = 65536
_LINE_LIMIT: Final = 65536


class Running:
    """A command under way. Made by ``Launcher.start``.

    Args:
        output: the reading end of its pipe; closed here when the command has closed its own.
        heard: called with each line of its output, without its end.
        send_signal: sends a signal to its process group.

    Attributes:
        status: done when it has ended: its exit code, or minus the number of the signal that ended it.
    """

    def __init__(
        self,
        output: int,
        heard: Callable[[str], None],
        status: "asyncio.Future[int]",
        send_signal: Callable[[int], None],
    ) -> None:
        self._output = output
        self._heard = heard
        self._send_signal = send_signal
        self._line = b""
        self._silent = asyncio.Event()
        self.status = status
        self.status.add_done_callback(_looked_at)
        os.set_blocking(output, False)
        asyncio.get_running_loop().add_reader(output, self._read)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.status.done()

    async def stop(self, deadline: Deadline) -> int:
        """Ask it to end by SIGTERM, and kill it when it has not done so by the deadline; then read its last words.

        Returns:
            What ``status`` has.
        """
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

    async def kill(self) -> int:
        """Kill it, and read its last words. Returns what ``status`` has."""
        if not self.has_ended:
            self._send_signal(signal.SIGKILL)
        status = await asyncio.shield(self.status)
        await self.drained()
        return status

    async def drained(self) -> None:
        """Wait until all that it has said has been heard; a child that it left behind is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._silent.wait()
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
            self._heard(line.decode(errors="replace"))

    def _close(self) -> None:
        if self._silent.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        if self._line:
            self._heard(self._line.decode(errors="replace"))
        self._silent.set()


class Attached:
    """A command under way on a client's own standard streams. Made by ``Launcher.start_attached``."""

    def __init__(self, status: "asyncio.Future[int]", send_signal: Callable[[int], None]) -> None:
        self.status = status
        self.send_signal = send_signal
        self.status.add_done_callback(_looked_at)

    async def hang_up(self, deadline: Deadline) -> None:
        """Tell it that nobody is there any more, by SIGHUP as a terminal does; kill it if it lives on."""
        if self.status.done():
            return
        self.send_signal(signal.SIGHUP)
        self.send_signal(signal.SIGCONT)  # one that is stopped would not hear of it
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.remaining):
                await asyncio.shield(self.status)
        self.send_signal(signal.SIGKILL)


def _looked_at(status: "asyncio.Future[int]") -> None:
    """Nobody need ask how it ended; asyncio would complain of an error that nobody has seen."""
    if not status.cancelled():
        status.exception()
