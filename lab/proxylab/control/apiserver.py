"""The API server of a lab, on a listening socket in every node.

Owns ``ApiServer``, the sockets and the streaming of watches; ``proxylab.control.kubeapi`` is the API itself. It has no
TLS and no authentication: it listens only on the loopback device of each node's namespace, where only the node's own
processes can dial.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Final

from proxylab.cluster.store import Event, Store
from proxylab.control.http import Answer, HttpRequest, HttpServer, Stream
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
        self._store = store
        self._api = KubeApi(store, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._servers: dict[NetNs, HttpServer] = {}

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
        while self._servers:
            _, server = self._servers.popitem()
            await server.close()

    def _answer(self, request: HttpRequest) -> Answer | Stream:
        content_type = request.headers.get("content-type", "")
        match self._api.answer(request.method, request.path, request.query, request.body, content_type):
            case Reply(code, body, kind, headers):
                return Answer(code, body, {"Content-Type": kind, **dict(headers)})
            case WatchReply() as watched:
                return Stream(200, self._follow(watched), {"Content-Type": "application/json"})

    async def _follow(self, watched: WatchReply) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, joined into pieces, until its time is over."""
        watch, following = watched.watch, watched.following
        now = asyncio.get_running_loop().time
        end, bookmark_at = now() + watch.seconds, now() + _BOOKMARK_SECONDS
        changed = asyncio.Event()

        def note(_event: Event) -> None:
            changed.set()

        unsubscribe = self._store.subscribe(note)
        try:
            while not following.ended:
                changed.clear()
                piece = bytearray()
                for line in following.news():
                    piece += line
                    if len(piece) >= _PIECE:
                        yield bytes(piece)
                        piece.clear()
                if watch.bookmarks and now() >= bookmark_at:
                    piece += following.bookmark()
                    bookmark_at = now() + _BOOKMARK_SECONDS
                if piece:
                    yield bytes(piece)
                if now() >= end:
                    return
                wake_at = min(end, bookmark_at) if watch.bookmarks else end
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(wake_at):
                        await changed.wait()
        finally:
            unsubscribe()
