"""The HTTP servers of one node.

Owns: ``NodeServers``: which addresses are served, and by whom.
Must not: know what the answers mean.
"""

from collections.abc import Callable, Mapping

from lab.control.http import Answer, HttpRequest, HttpServer
from lab.control.listen import listen_inside
from lab.ip import IPAddress
from lab.kernel.netns import NetNs

__all__ = ["NodeServers", "PathHandler"]

Place = tuple[IPAddress, int]

PathHandler = Callable[[str], Answer]
"""From the path of a request, without its query, to the answer."""


class NodeServers:
    """Servers on sockets of one node's namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._netns = netns
        self._servers: dict[Place, HttpServer] = {}

    async def serve(self, wanted: Mapping[Place, PathHandler]) -> tuple[str, ...]:
        """Serve these places and no others. Whoever is served already goes on, by the handler it has.

        Returns:
            A line for each place that cannot be had; it is tried again the next time.
        """
        for place in [place for place in self._servers if place not in wanted]:
            await self._servers.pop(place).close()
        failed = []
        for place, handler in wanted.items():
            if place in self._servers:
                continue
            try:
                listening = listen_inside(self._netns, *place)
            except OSError as error:
                failed.append(f"cannot listen on {place[0]} port {place[1]}: {error.strerror}")
            else:
                self._servers[place] = await HttpServer.on(listening, _by_path(handler))
        return tuple(failed)

    async def close(self) -> None:
        """Serve nothing any more."""
        await self.serve({})


def _by_path(handler: PathHandler) -> Callable[[HttpRequest], Answer]:
    return lambda request: handler(request.path)
