"""A node's rules for Services, the same for all modes."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress, Protocol


class Hook:
    """The three hooks that must jump to the rules of a Service proxy, by the packets that traverse them."""

    IN = "packets that come in"
    OUT = "packets of the node itself"
    LEAVING = "packets that leave"


class Entry(Struct, frozen=True, kw_only=True):
    """One dispatch rule, or element of a map, that matches a frontend.

    Attributes:
        leads_to: the chain that it jumps to; empty for a refusal.
        refused: ``REJECT`` or ``DROP`` for a refusal.
    """

    address: IPAddress | None
    protocol: Protocol
    port: int
    leads_to: str = ""
    refused: str = ""


class Way(Struct, frozen=True, kw_only=True):
    """One choice of a chain that balances.

    Attributes:
        by: the chain that translates, or the balancing chain where that does it itself.
        chance: its share or, for rules matched in turn, its probability where no earlier one matched.
        to: the new destination; ``None`` where nothing translates.
    """

    by: str
    chance: float
    to: tuple[IPAddress, int] | None


class Programmed(Struct, frozen=True, kw_only=True):
    """The rules of one node in one family.

    Attributes:
        hooked: the hooks that jump to the rules for Services.
        reaches_addresses: whether those jump on to rules for addresses.
        reaches_node_ports: whether those jump on to rules for node ports.
        leads: the chains to which a chain jumps, in order.
        ways: the choices of every chain that balances.
        local: of those, the chains that choose among the endpoints of policy Local.
        in_turn: whether the kernel tries choices one after the other.
        falls_back: whether each frontend has one chain alone, which under policy Local chooses among all endpoints
            where none is local.
    """

    hooked: frozenset[str]
    reaches_addresses: bool
    reaches_node_ports: bool
    entries: tuple[Entry, ...]
    leads: Mapping[str, tuple[str, ...]]
    ways: Mapping[str, tuple[Way, ...]]
    local: frozenset[str]
    in_turn: bool
    masquerades: bool
    falls_back: bool = False

    def balancing(self, entry: Entry) -> tuple[str, ...]:
        """The balancing chains behind an entry, nearest first."""
        found: list[str] = []
        ahead, met = [entry.leads_to], {""}
        while ahead:
            chain = ahead.pop(0)
            if chain in met:
                continue
            met.add(chain)
            if self.ways.get(chain):
                found.append(chain)
            ahead += self.leads.get(chain, ())
        return tuple(found)

    def share(self, chain: str, number: int) -> float:
        """The share of flows that a choice gets."""
        ways: Sequence[Way] = self.ways[chain]
        if not self.in_turn:
            return ways[number].chance
        left = 1.0
        for before in ways[:number]:
            left *= 1 - before.chance
        return left * ways[number].chance
