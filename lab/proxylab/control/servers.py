"""The HTTP servers of one node: which addresses they serve, with which handlers."""

from collections.abc import Callable, Mapping
from errno import EAFNOSUPPORT
from functools import partial

from proxylab.addresses import IPAddress
from proxylab.control.http_server import Answer, HttpRequest, HttpServer
from proxylab.control.listen import listen_inside
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["NodeServers", "PathHandler"]

SocketAddress = tuple[IPAddress, int]

PathHandler = Callable[[str], Answer]
"""From the path of a request, without its query, to the answer."""


class NodeServers:
    """Servers on sockets of one node's namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._netns = netns
        self._servers: dict[SocketAddress, HttpServer] = {}
        self._wanted: Mapping[SocketAddress, PathHandler] = {}

    async def serve(self, wanted: Mapping[SocketAddress, PathHandler]) -> tuple[str, ...]:
        """Listen at these addresses and no others. An open socket stays open and gets its new handler.

        Returns:
            A line for each address that fails, which the next call tries again; none for a family that the kernel
            lacks.
        """
        self._wanted = dict(wanted)
        for address in [address for address in self._servers if address not in wanted]:
            await self._servers.pop(address).close()
        failed = []
        for address in wanted:
            if address in self._servers:
                continue
            try:
                listening = listen_inside(self._netns, *address)
            except OSError as error:
                if error.errno == EAFNOSUPPORT:  # a kernel without IPv6 has no clients for the address either
                    continue
                failed.append(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}")
            else:
                self._servers[address] = await HttpServer.on(listening, partial(self._answer, address))
        return tuple(failed)

    def _answer(self, address: SocketAddress, request: HttpRequest) -> Answer:
        """Call the current handler: a port may pass from one Service to another. 503 without a handler."""
        handler = self._wanted.get(address)
        return Answer(503) if handler is None else handler(request.path)

    async def close(self) -> None:
        """Close all sockets."""
        await self.serve({})
