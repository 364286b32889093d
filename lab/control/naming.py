"""The names of a lab at work: every server that the plan has, on the store as it stands.

Owns: ``NameService``, which answers what is asked, and asks what somebody wants to know.
Must not: know what names follow from objects (``cluster.names``), or DNS messages (``control.dns``).
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from lab.cluster.names import Names
from lab.cluster.objects import EndpointSlice, Service
from lab.cluster.store import Store
from lab.control.dns import answer
from lab.control.listen import listen_inside, receive_inside
from lab.control.nameserver import Aside, Nameserver
from lab.errors import InternalError
from lab.ip import IPAddress, Protocol
from lab.kernel.netns import NetNs
from lab.plan.model import Listener, Namespace, Plan

__all__ = ["NameService"]


class NameService:
    """The name servers of one lab.

    Args:
        store: the cluster whose names they are.
        hidden: the namespace of what is the lab's own, which has no names.
    """

    def __init__(self, store: Store, hidden: str = "") -> None:
        self._store = store
        self._hidden = hidden
        self._servers: list[Nameserver] = []
        self._names = Names((), ())
        self._revision = -1

    async def open(self, namespaces: Mapping[str, NetNs], plan: Plan, aside: Callable[[str], Aside]) -> None:
        """Begin to serve wherever the plan says so.

        Args:
            namespaces: of the lab.
            plan: likewise.
            aside: what else a server of that name answers.

        Raises:
            InternalError: a port cannot be had; what was opened stays until ``close``.
        """
        for namespace in plan.namespaces:
            for listener in namespace.listeners:
                if listener.serves_names and listener.protocol in (Protocol.TCP, Protocol.UDP):
                    sockets = _sockets(namespaces[namespace.name], namespace, listener)
                    datagrams, streams = (sockets, []) if listener.protocol is Protocol.UDP else ([], sockets)
                    respond = partial(self._respond, listener.name)
                    self._servers.append(await Nameserver.on(datagrams, streams, respond, aside(listener.name)))

    async def close(self) -> None:
        """Serve no longer."""
        servers, self._servers = self._servers, []
        for each in servers:
            await each.close()

    def _respond(self, server: str, message: bytes, by_udp: bool) -> bytes | None:
        return answer(self._current(), message, serial=self._store.revision, by_udp=by_udp, server=server)

    def _current(self) -> Names:
        """The names of the cluster as it is now, made anew when it has changed since the last question."""
        if self._revision != self._store.revision:
            services = [each for each in self._store.list(Service) if each.namespace != self._hidden]
            self._names = Names(services, self._store.list(EndpointSlice))
            self._revision = self._store.revision
        return self._names


def _sockets(netns: NetNs, namespace: Namespace, listener: Listener) -> list[socket.socket]:
    opened: list[socket.socket] = []
    make = receive_inside if listener.protocol is Protocol.UDP else listen_inside
    try:
        opened.extend(make(netns, address, listener.port) for address in _listening_on(namespace, listener))
    except OSError as error:
        for each in opened:
            each.close()
        raise InternalError(
            f"{listener.name} cannot serve names at {listener.protocol} {listener.port}: {error}; "
            "the plan must give each port to one listener"
        ) from error
    return opened


def _listening_on(namespace: Namespace, listener: Listener) -> Iterator[IPAddress]:
    """Each of its own addresses: an answer must come from the one that was asked."""
    if listener.address is not None:
        yield listener.address
        return
    for address in namespace.addresses:
        if not address.interface.ip.is_link_local:
            yield address.interface.ip
