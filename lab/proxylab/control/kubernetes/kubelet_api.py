"""The API of the lab's kubelets, for ``kubectl logs``, ``exec`` and ``port-forward``.

The API server dials the node of a pod at port 10250, by TLS, and asks for a log by plain HTTP, or for streams by an
upgrade to SPDY, whichever way its own client has come. The paths and the parameters are those of the kubelet's server
(kubernetes/pkg/kubelet/server). Only the control plane can reach this port: its namespace has no link.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import h11
from msgspec import Struct

from proxylab.control.kubernetes.accepted_sockets import AcceptedSockets
from proxylab.control.kubernetes.execution import execute
from proxylab.control.kubernetes.pod_log import LogQuestion, PodLog
from proxylab.control.kubernetes.port_forward import forward
from proxylab.control.kubernetes.spdy import UPGRADE
from proxylab.control.kubernetes.spdy_streams import SpdyStreams
from proxylab.kernel.sandbox.running import Attached
from proxylab.timing import Deadline, wait_until

KUBELET_PORT: Final = 10250

_CHUNK: Final = 1 << 16
_REQUEST_SECONDS: Final = 10.0
_FOLLOWED_SECONDS: Final = 3600.0 * 8
_EXEC: Final = ("v4.channel.k8s.io",)
_FORWARD: Final = ("portforward.k8s.io",)
_PROTOCOL: Final = "X-Stream-Protocol-Version"


class PodOfKubelet(Protocol):
    """A pod as its kubelet reaches it."""

    @property
    def log(self) -> PodLog:
        """Its log."""

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""

    async def start(self, argv: Sequence[str], standard: Sequence[int], /, *, terminal: bool) -> Attached:
        """Start a command on these standard descriptors. Raises ``LabError``."""

    async def dial(self, port: int, /) -> socket.socket:
        """Dial a port at its loopback address. Raises ``OSError``."""


Find = Callable[[str, str], PodOfKubelet | None]
"""The pod of a namespace and a name, if the lab runs it."""


class _Refused(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Asked(Struct, frozen=True):
    """A request: the parts of its path, its query, and the protocols of streams that its client speaks."""

    path: tuple[str, ...]
    query: dict[str, list[str]]
    protocols: tuple[str, ...]
    upgrade: str


class KubeletApi:
    """Serves the pods that ``find`` finds, on sockets that it closes at the end."""

    def __init__(self, listening: Sequence[socket.socket], context: ssl.SSLContext, find: Find) -> None:
        self._context = context
        self._find = find
        self._accepted = [AcceptedSockets(each, self._serve) for each in listening]

    async def close(self) -> None:
        """End all that is under way, commands too."""
        for each in self._accepted:
            await each.close()

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        with suppress(OSError):
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection.dup(), ssl=self._context
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
            try:
                with suppress(h11.RemoteProtocolError):
                    await _KubeletAnswer(reader, writer, self._find).run()
            finally:
                writer.transport.abort()


class _KubeletAnswer:
    """One request and all that follows from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: Find) -> None:
        self._reader = reader
        self._writer = writer
        self._find = find
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        async with asyncio.timeout(_REQUEST_SECONDS):
            asked = await self._asked()
        try:
            match asked.path:
                case ("containerLogs", namespace, name, _container):
                    await self._tell_log(self._pod(namespace, name), asked)
                case ("exec", namespace, name, _container):
                    start = self._running(namespace, name).start
                    await self._stream(asked, _EXEC, lambda streams: execute(streams, start, asked.query))
                case ("portForward", namespace, name):
                    dial = self._running(namespace, name).dial
                    await self._stream(asked, _FORWARD, lambda streams: forward(streams, dial))
                case ("attach", *_):
                    words = "a pod of a lab runs no process to attach to; see `kubectl logs`, or use `kubectl exec`"
                    await self._answer(HTTPStatus.NOT_IMPLEMENTED, words)
                case _:
                    words = "a kubelet of a lab serves logs, exec and port-forward"
                    await self._answer(HTTPStatus.NOT_FOUND, words)
        except _Refused as refused:
            await self._answer(refused.status, str(refused))

    def _pod(self, namespace: str, name: str) -> PodOfKubelet:
        if (pod := self._find(namespace, name)) is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"the lab runs no pod {namespace}/{name}")
        return pod

    def _running(self, namespace: str, name: str) -> PodOfKubelet:
        if (pod := self._pod(namespace, name)).is_gone:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"pod {namespace}/{name} has ended")
        return pod

    async def _asked(self) -> _Asked:
        request: h11.Request | None = None
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_CHUNK))
            elif isinstance(event, h11.Request):
                request = event
            elif request is not None and (event is h11.PAUSED or isinstance(event, h11.EndOfMessage)):
                break
            elif not isinstance(event, h11.Data):
                raise ConnectionResetError("the client has gone")
        url = urlsplit(request.target.decode("ascii"))
        headers = [(name.decode(), value.decode()) for name, value in request.headers]
        return _Asked(
            tuple(unquote(each) for each in url.path.strip("/").split("/")),
            parse_qs(url.query, keep_blank_values=True),
            tuple(word.strip() for name, value in headers if name == _PROTOCOL.lower() for word in value.split(",")),
            next((value for name, value in headers if name == "upgrade"), ""),
        )

    async def _answer(self, status: HTTPStatus, words: str) -> None:
        body = words.encode()
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())

    async def _tell_log(self, pod: PodOfKubelet, asked: _Asked) -> None:
        try:
            question = LogQuestion.read({key: values[0] for key, values in asked.query.items()})
        except ValueError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"a parameter of the log cannot be read: {error}") from error
        if question.previous:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a pod of a lab is not restarted, so it has no previous log")
        headers = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked"), ("Connection", "close")]
        await self._send(h11.Response(status_code=HTTPStatus.OK, headers=headers))
        log, seen, left = pod.log, pod.log.count, question.limit
        text = question.text(question.first(log.since()))
        hung_up = asyncio.create_task(self._reader.read(1))
        try:
            while text or question.follow:
                piece = text if left is None else text[:left]
                left = None if left is None else left - len(piece)
                await self._send(*((h11.Data(data=piece),) if piece else ()))
                if not question.follow or left == 0 or hung_up.done() or pod.is_gone:
                    break
                await wait_until(
                    lambda seen=seen: log.count > seen or hung_up.done() or pod.is_gone,  # type: ignore[misc]
                    Deadline.after(_FOLLOWED_SECONDS),
                    "a line of the log",
                )
                text, seen = question.text(log.since(seen)), log.count
        finally:
            hung_up.cancel()
        await self._send(h11.EndOfMessage())

    async def _stream(
        self, asked: _Asked, known: Sequence[str], serve: Callable[[SpdyStreams], Awaitable[None]]
    ) -> None:
        if asked.upgrade.upper() != UPGRADE:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the kubelets of a lab stream by {UPGRADE} only")
        chosen = next((each for each in known if each in asked.protocols), None)
        if chosen is None:
            words = f"the streams are {', '.join(known)}; the client speaks {', '.join(asked.protocols) or 'none'}"
            raise _Refused(HTTPStatus.FORBIDDEN, words)
        headers = [("Connection", "Upgrade"), ("Upgrade", UPGRADE), (_PROTOCOL, chosen)]
        await self._send(h11.InformationalResponse(status_code=HTTPStatus.SWITCHING_PROTOCOLS, headers=headers))
        received, _ = self._http.trailing_data
        streams = SpdyStreams(self._reader, self._writer, received)
        try:
            with suppress(OSError):
                await serve(streams)
        finally:
            await streams.close()

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._http.send(each) or b"" for each in events))
        await self._writer.drain()
