"""The name service of a lab: answers DNS queries from the current objects of the store."""

from proxylab.cluster.names import Names
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.cluster.store import Store
from proxylab.control.dns_server import answer

__all__ = ["NameService"]


class NameService:
    """Answers for every name server of one lab.

    Args:
        store: the cluster.
        hidden: the namespace of the lab's own objects, which get no names.
    """

    def __init__(self, store: Store, hidden: str = "") -> None:
        self._store = store
        self._hidden = hidden
        self._names = Names((), ())
        self._revision = -1

    def respond(self, server: str, message: bytes, by_udp: bool) -> bytes | None:
        """The response of the server of that name to a message; ``None`` for no response."""
        return answer(self._current(), message, serial=self._store.revision, by_udp=by_udp, server=server)

    def _current(self) -> Names:
        """The names of the cluster as it is now, rebuilt when it has changed since the last query."""
        if self._revision != self._store.revision:
            services = [each for each in self._store.list(Service) if each.namespace != self._hidden]
            self._names = Names(services, self._store.list(EndpointSlice))
            self._revision = self._store.revision
        return self._names
