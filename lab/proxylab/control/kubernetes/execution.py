"""A command in a pod on the streams of ``kubectl exec``: protocol v4 of remote commands.

The client opens a stream for each of standard input, output and error, one for the outcome, and with a terminal one for
its size. The outcome is a v1 Status, whose cause ``ExitCode`` has the exit code.
"""

import asyncio
import fcntl
import json
import os
import struct
import termios
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol

from proxylab.control.kubernetes.spdy_streams import SpdyStream, SpdyStreams
from proxylab.errors import LabError
from proxylab.kernel.sandbox.running import Attached
from proxylab.timing import Deadline


class StartsCommands(Protocol):
    """Starts a command in a pod."""

    async def __call__(self, argv: Sequence[str], standard: Sequence[int], /, *, terminal: bool) -> Attached:
        """StartsCommands it on these standard descriptors, which are a terminal or not. Raises ``LabError``."""


_OPENING_SECONDS: Final = 30.0
_HANG_UP_SECONDS: Final = 1.0
_REST_SECONDS: Final = 1.0
"""For the output of children that outlive the command."""

_LEAVING_SECONDS: Final = 5.0
_CHUNK: Final = 1 << 15
_OF_QUERY: Final = {"input": "stdin", "output": "stdout", "error": "stderr"}


async def execute(streams: SpdyStreams, start: StartsCommands, query: Mapping[str, Sequence[str]]) -> None:
    """Run the command of a query until it ends, or its client goes. Raises ``OSError`` where the client is gone."""
    terminal = query.get("tty") in (["1"], ["true"])
    wanted = {"error", *(kind for key, kind in _OF_QUERY.items() if query.get(key) in (["1"], ["true"]))}
    if terminal:
        wanted = (wanted - {"stderr"}) | {"resize"}
    opened: dict[str, SpdyStream] = {}
    async with asyncio.timeout(_OPENING_SECONDS):
        while not wanted <= opened.keys():
            stream = await streams.opened()
            opened[stream.headers.get("streamtype", "")] = stream
    with ExitStack() as descriptors:
        standard, near = _standard(opened, descriptors, terminal=terminal)
        try:
            command = await start(query.get("command", ()), standard, terminal=terminal)
        except LabError as error:
            await opened["error"].write(_status(str(error)), end=True)
            return
        finally:
            for number in set(standard):
                os.close(number)
        outputs = [asyncio.create_task(_tell(near[kind], opened[kind])) for kind in opened if kind in _OUTPUTS]
        inputs = [asyncio.create_task(_hear(opened["stdin"], near, is_pipe=not terminal))] if "stdin" in opened else []
        if terminal:
            inputs.append(asyncio.create_task(_resize(opened["resize"], near["stdout"])))
        try:
            await asyncio.wait((command.status, streams.gone), return_when=asyncio.FIRST_COMPLETED)
            if command.status.done():
                await asyncio.wait(outputs or [streams.gone], timeout=_REST_SECONDS)
                await _conclude(opened, await command.status)
                await asyncio.wait((streams.gone,), timeout=_LEAVING_SECONDS)
        finally:
            for each in (*inputs, *outputs):
                each.cancel()
            await asyncio.gather(*inputs, *outputs, return_exceptions=True)
            await command.hang_up(Deadline.after(_HANG_UP_SECONDS))


_OUTPUTS: Final = ("stdout", "stderr")


def _standard(
    opened: Mapping[str, SpdyStream], descriptors: ExitStack, *, terminal: bool
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The command's standard descriptors, which the caller closes, and the lab's ends of them."""
    if terminal:
        primary, replica = os.openpty()
        os.set_blocking(primary, False)
        descriptors.callback(os.close, primary)
        return (replica, replica, replica), dict.fromkeys(("stdin", "stdout"), primary)
    far: list[int] = []
    near: dict[str, int] = {}
    descriptors.callback(_close_all, near)
    for kind in ("stdin", *_OUTPUTS):
        if kind not in opened:
            far.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            continue
        reading, writing = os.pipe2(os.O_CLOEXEC)
        theirs, ours = (reading, writing) if kind == "stdin" else (writing, reading)
        os.set_blocking(ours, False)
        far.append(theirs)
        near[kind] = ours
    return (far[0], far[1], far[2]), near


def _close_all(near: Mapping[str, int]) -> None:
    for each in near.values():
        os.close(each)


async def _tell(descriptor: int, stream: SpdyStream) -> None:
    """Send what the command writes."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # EIO at the end of a terminal
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                readable = asyncio.Event()
                loop.add_reader(descriptor, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(descriptor)
                continue
            if not data:
                break
            await stream.write(data)


async def _hear(stream: SpdyStream, near: dict[str, int], *, is_pipe: bool) -> None:
    """Let the command read what comes. It sees the end of a pipe when that is closed."""
    loop, descriptor = asyncio.get_running_loop(), near["stdin"]
    try:
        while data := await stream.read():
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[os.write(descriptor, rest) :]
                except BlockingIOError:
                    writable = asyncio.Event()
                    loop.add_writer(descriptor, writable.set)
                    try:
                        await writable.wait()
                    finally:
                        loop.remove_writer(descriptor)
    except OSError:
        pass  # the command reads no more
    if is_pipe:
        os.close(near.pop("stdin"))


async def _resize(stream: SpdyStream, descriptor: int) -> None:
    """Give the terminal the sizes that come, each a JSON object."""
    waiting, decoder = "", json.JSONDecoder()
    while data := await stream.read():
        waiting = (waiting + data.decode(errors="replace")).lstrip()
        with suppress(ValueError, KeyError, TypeError, struct.error):
            while waiting:
                size, end = decoder.raw_decode(waiting)
                waiting = waiting[end:].lstrip()
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(descriptor, termios.TIOCSWINSZ, packed)


async def _conclude(opened: Mapping[str, SpdyStream], status: int) -> None:
    for kind in _OUTPUTS:
        if kind in opened:
            await opened[kind].write(b"", end=True)
    code = status if status >= 0 else 128 - status  # as a shell says that a signal has ended it
    await opened["error"].write(_status("", code), end=True)


def _status(words: str, code: int = 0) -> bytes:
    """The v1 Status of a command that has ended with that code, or could not be started."""
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code or words:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {
            "metadata": {},
            "status": "Failure",
            "message": words or f"command terminated with non-zero exit code: {code}",
            **({} if words else {"reason": "NonZeroExitCode", "details": {"causes": causes}}),
        }
    return json.dumps(status).encode()
