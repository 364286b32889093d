"""The API server of a lab, on a listening socket in every node.

Owns ``ApiServer``, the sockets and the streaming of watches; ``proxylab.control.kubeapi`` is the API itself. It has no
TLS and no authentication: it listens only on the loopback device of each node's namespace, where only the node's own
processes can dial.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Final

from proxylab.cluster.store import Event, Store
from proxylab.control.http_server import ChunkedResponse, HttpResponse, HttpServer, ReceivedRequest, listen_inside
from proxylab.control.kubeapi.api import ApiReply, KubeApi, WatchReply
from proxylab.errors import EngineError
from proxylab.kernel.sandbox.netns import NetNs

API_ADDRESS: Final = IPv4Address("127.0.0.1")
API_PORT: Final = 61443
"""Neither a node port nor an ephemeral port. 6443 stays free for pods that stand for an API server."""

_CHUNK_BYTES: Final = 256 * 1024


class ApiServer:
    """Serves one store to the processes of any number of nodes."""

    def __init__(self, store: Store) -> None:
        self._api = KubeApi(store, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._servers: dict[NetNs, HttpServer] = {}
        self._down: tuple[NetNs, ...] = ()
        self._delay = 0.0
        self._watches: set[_Watching] = set()
        self._coming: asyncio.TimerHandle | None = None
        self._unsubscribe = store.subscribe(self._note)

    async def listen(self, netns: NetNs) -> None:
        """Serve on the loopback address of a namespace as well; does nothing where it serves already.

        Raises:
            EngineError: another program listens there, so a proxy of this node could not reach the API.
        """
        if netns in self._servers:
            return
        try:
            listening = listen_inside(netns, API_ADDRESS, API_PORT)
        except OSError as error:
            what = f"the API server cannot listen on {API_ADDRESS}:{API_PORT}: {error.strerror}"
            raise EngineError(netns.name, what, "") from error
        self._servers[netns] = HttpServer(listening, self._answer, delay=lambda: self._delay)

    async def go_down(self) -> None:
        """Break all connections, and refuse new ones until ``come_up``."""
        self._down = (*self._down, *self._servers)
        while self._servers:
            _, server = self._servers.popitem()
            await server.close()

    async def come_up(self) -> None:
        """Listen again where it listened before. Raises ``EngineError``."""
        down, self._down = self._down, ()
        for netns in down:
            await self.listen(netns)

    def forget(self) -> None:
        """End all watches with status 410: the history does not reach back to where they are."""
        for watching in tuple(self._watches):
            watching.expire()

    def hold_back(self, seconds: float) -> None:
        """Hold each answer and event back that long from now on; without a delay, events that wait come at once."""
        self._delay = seconds
        if self._coming is not None and not seconds:
            self._coming.cancel()
            self._advance()

    async def close(self) -> None:
        """Close all sockets, and end all watches."""
        self._unsubscribe()
        await self.go_down()

    def _answer(self, request: ReceivedRequest) -> HttpResponse | ChunkedResponse:
        content_type, accept = (request.headers.get(each, "") for each in ("content-type", "accept"))
        match self._api.answer(request.method, request.path, request.query, request.body, content_type, accept):
            case ApiReply(code, body, kind, headers):
                return HttpResponse(code, body, {"Content-Type": kind, **dict(headers)})
            case WatchReply() as watched:
                return _Watching(watched, self._watches)

    def _note(self, _event: Event) -> None:
        """Advance all watches soon: once for all changes that are made together."""
        if self._watches and self._coming is None:
            self._coming = asyncio.get_running_loop().call_later(self._delay, self._advance)

    def _advance(self) -> None:
        self._coming = None
        for watching in tuple(self._watches):
            watching.more()


class _Watching(ChunkedResponse):
    """A watch, and its place among all that are under way."""

    content_type = "application/json"
    more: Callable[[], None]
    _end: asyncio.TimerHandle

    def __init__(self, watched: WatchReply, watches: "set[_Watching]") -> None:
        self._watched = watched
        self._watches = watches

    def begin(self, more: Callable[[], None]) -> None:
        self.more = more
        self._end = asyncio.get_running_loop().call_later(self._watched.watch.seconds, self._finish)
        self._watches.add(self)

    def take(self) -> bytes | None:
        open_watch = self._watched.open_watch
        return open_watch.new_lines(_CHUNK_BYTES) or (None if open_watch.ended else b"")

    def end(self) -> None:
        self._watches.discard(self)
        self._end.cancel()

    def expire(self) -> None:
        """End the watch as one whose client has fallen behind the history."""
        self._watched.open_watch.expire()
        self.more()

    def _finish(self) -> None:
        self._watched.open_watch.finish()
        self.more()
