"""Deals the source ports of flows, so that no two flows of a lab that could meet in conntrack share a tuple.

It opens no sockets, and never deals a port on which something in the lab listens.

Conntrack sends a second flow with a known UDP tuple to where the first one went, without consulting any rule again
(``nf_nat_inet_fn`` consults rules for new entries only). So each sender and protocol has a deck of its own, dealt in
turn across probes and whatever they dial: two Services may have one endpoint, and there two flows with one port would
meet. No port comes a second time before conntrack is flushed; ``deal`` and ``claim`` tell their caller when that is
due. After that a deck goes on where it was: a pod may still know a connection that its client has given up, and would
not answer a new one from the same port.
"""

import random
from collections.abc import Collection
from typing import Final

from proxylab.addresses import Family, Transport
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.probes import MOST_FLOWS

Sender = tuple[str, Family]
"""A namespace and the family of what it sends: tuples of two families never meet."""

# All but the privileged ports and the kernel's own choice for sockets without a port: the default of
# net.ipv4.ip_local_port_range, which the lab does not change (networking/ip-sysctl, Linux documentation).
_PORTS: Final = (*range(1024, 32768), *range(61000, 65536))


# The kernel's choice. The deck takes a few of them where listeners use up too many of the other ports.
_EPHEMERAL: Final = range(32768, 61000)


def side_of(resolved: ResolvedProbe) -> Sender:
    """The side from which a probe or stream sends."""
    return resolved.sender.namespace, Family.of(resolved.destination)


class PortAllocator:
    """Deals ports, each sender and protocol from a deck of its own. The seed orders the decks."""

    def __init__(self, seed: int, taken: Collection[int]) -> None:
        """``taken`` are ports on which something in the lab listens: a reply to one would find a listener."""
        self._deck = [port for port in _PORTS if port not in taken]
        if (lacking := MOST_FLOWS - len(self._deck)) > 0:
            self._deck += [port for port in _EPHEMERAL if port not in taken][:lacking]
        self._random = random.Random(seed)  # noqa: S311 - an order to repeat, not a secret
        self._shuffled = 0
        self._first: dict[tuple[Sender, Transport], int] = {}
        self._next: dict[tuple[Sender, Transport], int] = {}
        self._claimed: dict[tuple[Sender, Transport], set[int]] = {}
        self._going_on: dict[tuple[Sender, Transport], frozenset[int]] = {}

    @property
    def size(self) -> int:
        """How many flows of one run can have a port of their own: no fewer than a scenario may ask for."""
        return len(self._deck)

    def deal(self, sender: Sender, protocol: Transport, flows: int) -> tuple[int, ...] | None:
        """Distinct ports for the flows of one run; ``None`` if too few are left, so that conntrack must be flushed."""
        claimed = self._claimed.get((sender, protocol), ())
        begin = self._next.get((sender, protocol), 0)
        last = self._first.get((sender, protocol), 0) + self.size
        dealt: list[int] = []
        while (missing := flows - len(dealt)) and begin < last:
            end = min(begin + missing, last)
            dealt += [port for port in self._between(begin, end) if port not in claimed]
            begin = end
        if missing:
            return None
        self._next[sender, protocol] = begin
        return tuple(dealt)

    def _between(self, begin: int, end: int) -> list[int]:
        """The ports of the deck from the one number to the other; behind its end it begins anew."""
        self._shuffle(end)
        return [self._deck[each % self.size] for each in range(begin, end)]

    def _shuffle(self, end: int) -> None:
        """Shuffle the deck only as far as needed: most labs need a few ports of tens of thousands."""
        deck, last = self._deck, self.size - 1
        for position in range(self._shuffled, min(end, self.size)):
            other = self._random.randint(position, last)
            deck[position], deck[other] = deck[other], deck[position]
        self._shuffled = max(self._shuffled, end)

    def claim(self, sender: Sender, protocol: Transport, port: int) -> bool:
        """Take the port that an author chose. False if a flow has used it, so that conntrack must be flushed."""
        claimed = self._claimed.setdefault((sender, protocol), set())
        if port in self._going_on.get((sender, protocol), ()):
            return True
        dealt = self._between(self._first.get((sender, protocol), 0), self._next.get((sender, protocol), 0))
        if port in claimed or port in dealt:
            return False
        claimed.add(port)
        return True

    def continue_flows(self) -> None:
        """Let later datagrams from author-chosen ports belong to the flows that these ports have had before.

        A client that a step leaves alone goes on like that: conntrack still has its entries.
        """
        self._going_on = {
            (sender, protocol): frozenset(ports)
            for (sender, protocol), ports in self._claimed.items()
            if protocol is Transport.UDP
        }

    def restart(self) -> None:
        """Let every port be dealt again, the last one last: conntrack has forgotten every flow."""
        self._first = dict(self._next)
        self._claimed.clear()
        self._going_on.clear()
