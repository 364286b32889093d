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
from proxylab.control.http_server import Answer, HttpRequest, HttpServer, Pieces, Stream
from proxylab.control.kubeapi.api import KubeApi, Reply, WatchReply
from proxylab.control.listen import listen_inside
from proxylab.errors import EngineError
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["API_ADDRESS", "API_PORT", "ApiServer"]

API_ADDRESS: Final = IPv4Address("127.0.0.1")
API_PORT: Final = 61443
"""Neither a node port nor an ephemeral port. 6443 stays free for pods that stand for an API server."""

_BOOKMARK_SECONDS: Final = 60.0  # apiserver's (storage/cacher: bookmarkFrequency)
_PIECE: Final = 256 * 1024


class ApiServer:
    """Serves one store to the processes of any number of nodes."""

    def __init__(self, store: Store) -> None:
        self._api = KubeApi(store, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._servers: dict[NetNs, HttpServer] = {}
        self._watches: set[_Watching] = set()
        self._is_noted = False
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
        self._servers[netns] = await HttpServer.on(listening, self._answer)

    async def close(self) -> None:
        """Close all sockets, and end all watches."""
        self._unsubscribe()
        while self._servers:
            _, server = self._servers.popitem()
            await server.close()

    def _answer(self, request: HttpRequest) -> Answer | Stream:
        content_type = request.headers.get("content-type", "")
        match self._api.answer(request.method, request.path, request.query, request.body, content_type):
            case Reply(code, body, kind, headers):
                return Answer(code, body, {"Content-Type": kind, **dict(headers)})
            case WatchReply() as watched:
                return Stream(200, _Watching(watched, self._watches), {"Content-Type": "application/json"})

    def _note(self, _event: Event) -> None:
        """Advance all watches soon: once for all changes that are made together."""
        if self._watches and not self._is_noted:
            self._is_noted = True
            asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        self._is_noted = False
        for watching in tuple(self._watches):
            watching.more()


class _Watching(Pieces):
    """The lines of one watch, joined into pieces, until its time is over.

    Args:
        watched: the watch.
        watches: those under way. This one joins them when its response begins.
    """

    more: Callable[[], None]
    _end: asyncio.TimerHandle
    _next_bookmark: asyncio.TimerHandle

    def __init__(self, watched: WatchReply, watches: "set[_Watching]") -> None:
        self._watch, self._following = watched.watch, watched.following
        self._watches = watches
        self._bookmark_is_due = self._is_over = False

    def begin(self, more: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.more = more
        self._end = loop.call_later(self._watch.seconds, self._stop)
        self._next_bookmark = loop.call_later(_BOOKMARK_SECONDS, self._add_bookmark)
        self._watches.add(self)

    def take(self) -> bytes | None:
        if self._following.ended:
            return None
        if piece := self._following.news(_PIECE):
            return piece
        if self._bookmark_is_due:
            self._bookmark_is_due = False
            return self._following.bookmark()
        return None if self._is_over else b""

    def end(self) -> None:
        self._watches.discard(self)
        self._end.cancel()
        self._next_bookmark.cancel()

    def _stop(self) -> None:
        self._is_over = True
        self.more()

    def _add_bookmark(self) -> None:
        self._next_bookmark = asyncio.get_running_loop().call_later(_BOOKMARK_SECONDS, self._add_bookmark)
        self._bookmark_is_due = self._watch.bookmarks
        self.more()
