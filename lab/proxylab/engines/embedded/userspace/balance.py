"""Which endpoint of a service port a connection goes to, as the proxy process chooses it.

Owns ``EndpointBalancer``: strict round robin over the endpoints in a random order, and session affinity by client
address (pkg/proxy/userspace/roundrobin.go). It opens no socket. The proxy process imports this module, so it needs
nothing but the standard library.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

Endpoint = tuple[str, int]
"""Address and port."""


class _Remembered(NamedTuple):
    """The endpoint of a client, and when the client last connected, in seconds of the caller's clock."""

    endpoint: Endpoint
    at: float


class EndpointBalancer:
    """The endpoints of one service port, and where its clients went.

    Args:
        draw: shuffles the endpoints, so that proxies on different nodes do not begin with the same one.
    """

    def __init__(self, draw: random.Random | None = None) -> None:
        self._draw = draw or random.Random()  # noqa: S311 - no secret
        self._endpoints: list[Endpoint] = []
        self._next = 0
        self._affinity: float | None = None
        self._clients: dict[str, _Remembered] = {}

    def update(self, endpoints: Sequence[Endpoint], affinity: float | None) -> None:
        """Replace the endpoints; ``affinity`` is the seconds of session affinity, ``None`` without.

        The same endpoints keep their order and their turn. A client forgets an endpoint that is gone and no other one.
        """
        self._affinity = affinity
        if sorted(endpoints) == sorted(self._endpoints):
            return
        self._clients = {client: known for client, known in self._clients.items() if known.endpoint in endpoints}
        self._endpoints = list(endpoints)
        self._draw.shuffle(self._endpoints)
        self._next = 0

    def choose(self, client: str, now: float, *, failed: bool = False) -> Endpoint | None:
        """The endpoint for a connection of ``client`` (an address); ``None`` where there is none.

        With ``failed`` the last choice for this connection refused it, so the client's memory does not count.
        """
        if not self._endpoints:
            return None
        known = None if failed or self._affinity is None else self._clients.get(client)
        if known is not None and self._affinity is not None and now - known.at < self._affinity:
            chosen = known.endpoint
        else:
            chosen = self._endpoints[self._next]
            self._next = (self._next + 1) % len(self._endpoints)
        if self._affinity is not None:
            self._clients[client] = _Remembered(chosen, now)
        return chosen

    def forget(self, now: float) -> None:
        """Forget clients whose affinity has expired."""
        if self._affinity is not None:
            least = now - self._affinity
            self._clients = {client: known for client, known in self._clients.items() if known.at > least}
