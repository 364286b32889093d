"""The streams of one SPDY connection, as the tasks of a server read and write them.

A stream that its task does not read holds up the whole connection, as it does on the other side: SPDY in Kubernetes has
no windows.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from proxylab.control.kubernetes.spdy import (
    Opened,
    Received,
    SpdyConnection,
    SpdyError,
    SpdyEvent,
    WasReset,
)

_CHUNK: Final = 1 << 16
_MOST_PIECES: Final = 64
_MOST_STREAMS: Final = 512
_END: Final = b""


class SpdyStream:
    """One stream, which the peer has opened."""

    def __init__(self, streams: "SpdyStreams", number: int, headers: Mapping[str, str]) -> None:
        self.headers: Final = headers
        self._streams = streams
        self._number = number
        self.pieces: Final = asyncio.Queue[bytes](_MOST_PIECES)
        self._is_over = False

    async def read(self) -> bytes:
        """The next piece of data; empty at the end of the stream."""
        if self._is_over:
            return _END
        piece = await self.pieces.get()
        self._is_over = piece == _END
        return piece

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Send data. Raises ``OSError`` where the connection has ended."""
        await self._streams.send(self._number, data, end=end)


class SpdyStreams:
    """The streams of a connection whose upgrade has been answered; ``received`` came with the request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._spdy = SpdyConnection()
        self._streams: dict[int, SpdyStream] = {}
        self._opened = asyncio.Queue[SpdyStream](_MOST_STREAMS)
        self.gone: Final = asyncio.create_task(self._receive(received))
        """Done when the peer has ended the connection."""

    async def opened(self) -> SpdyStream:
        """The next stream that the peer opens. Raises ``ConnectionError`` where it opens no more."""
        opening = asyncio.create_task(self._opened.get())
        try:
            await asyncio.wait((opening, self.gone), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return opening.result()
        finally:
            opening.cancel()
        raise ConnectionResetError("the connection has ended")

    async def send(self, number: int, data: bytes, *, end: bool) -> None:
        self._spdy.send(number, data, end=end)
        await self._flush()

    async def close(self) -> None:
        """Read no more."""
        self.gone.cancel()
        await asyncio.gather(self.gone, return_exceptions=True)

    async def _receive(self, received: bytes) -> None:
        with suppress(OSError, SpdyError):
            while True:
                for event in self._spdy.receive(received):
                    await self._take(event)
                await self._flush()
                if not (received := await self._reader.read(_CHUNK)):
                    break
        for stream in self._streams.values():
            if stream.pieces.full():
                stream.pieces.get_nowait()  # no one may read it any more, and the end must not wait
            stream.pieces.put_nowait(_END)

    async def _take(self, event: SpdyEvent) -> None:
        match event:
            case Opened():
                self._open(event)
            case Received():
                if event.data and (stream := self._streams.get(event.stream)) is not None:
                    await stream.pieces.put(event.data)
                if event.ended:
                    await self._end(event.stream)
            case WasReset():
                await self._end(event.stream)

    def _open(self, event: Opened) -> None:
        if event.stream in self._streams or len(self._streams) >= _MOST_STREAMS or self._opened.full():
            self._spdy.refuse(event.stream)
            return
        self._spdy.accept(event.stream)
        stream = self._streams[event.stream] = SpdyStream(self, event.stream, event.headers)
        self._opened.put_nowait(stream)
        if event.ended:
            stream.pieces.put_nowait(_END)
            del self._streams[event.stream]

    async def _end(self, number: int) -> None:
        if (stream := self._streams.pop(number, None)) is not None:
            await stream.pieces.put(_END)

    async def _flush(self) -> None:
        outgoing = bytes(self._spdy.outgoing)
        self._spdy.outgoing.clear()
        if outgoing:
            self._writer.write(outgoing)
            await self._writer.drain()
