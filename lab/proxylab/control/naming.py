"""The names of a lab at work: what is answered follows the store as it stands.

Owns: ``NameService``.
Must not: know what names follow from objects (``cluster.names``), DNS messages (``control.dns``), or sockets.
"""

from proxylab.cluster.names import Names
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.cluster.store import Store
from proxylab.control.dns import answer

__all__ = ["NameService"]


class NameService:
    """Answers for every name server of one lab.

    Args:
        store: the cluster whose names they are.
        hidden: the namespace of what is the lab's own, which has no names.
    """

    def __init__(self, store: Store, hidden: str = "") -> None:
        self._store = store
        self._hidden = hidden
        self._names = Names((), ())
        self._revision = -1

    def respond(self, server: str, message: bytes, by_udp: bool) -> bytes | None:
        """What the server of that name says to a message; ``None`` where it says nothing."""
        return answer(self._current(), message, serial=self._store.revision, by_udp=by_udp, server=server)

    def _current(self) -> Names:
        """The names of the cluster as it is now, made anew when it has changed since the last question."""
        if self._revision != self._store.revision:
            services = [each for each in self._store.list(Service) if each.namespace != self._hidden]
            self._names = Names(services, self._store.list(EndpointSlice))
            self._revision = self._store.revision
        return self._names
