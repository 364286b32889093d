"""What a node's rules do for Services, whatever tool wrote them down.

Owns: ``Programmed``, the rules of one node and family as far as a diagnosis goes, and ``by_family``, by which a dump is
parted.
Must not: know what they ought to be.
"""

import re
from collections.abc import Mapping, Sequence

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.frozen import dataclass

__all__ = ["Entry", "Hook", "Programmed", "Way", "by_family"]


class Hook:
    """The three places at which rules of a Service proxy must be led to."""

    IN = "what comes in"
    OUT = "what the node itself sends"
    LEAVING = "what leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One rule, or element of a map, that recognises a front.

    Attributes:
        address: the front's; ``None`` for a node port.
        protocol: of the front.
        port: of the front.
        leads_to: the chain that comes next; empty where it ends there.
        refused: ``REJECT`` or ``DROP`` where it ends there.
    """

    address: IPAddress | None
    protocol: Protocol
    port: int
    leads_to: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One choice of a chain that balances.

    Attributes:
        by: the chain that translates, or the balancing chain where that does it itself.
        chance: that it is taken where those before it were not, for rules that are asked in turn; its share otherwise.
        to: what the destination becomes; ``None`` where nothing translates.
    """

    by: str
    chance: float
    to: tuple[IPAddress, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Programmed:
    """The rules of one node in one family.

    Attributes:
        hooked: which hooks lead to the rules for Services.
        reaches: whether those lead on to rules for addresses, and to rules for node ports, by ``Entry.address``.
        entries: by what fronts are recognised.
        leads: to which chains a chain leads, in order.
        ways: the choices of every chain that balances.
        in_turn: whether choices are asked one after the other.
        masquerades: whether what was marked is masqueraded on its way out.
    """

    hooked: frozenset[str]
    reaches: Mapping[bool, bool]
    entries: tuple[Entry, ...]
    leads: Mapping[str, tuple[str, ...]]
    ways: Mapping[str, tuple[Way, ...]]
    in_turn: bool
    masquerades: bool

    def balancing(self, entry: Entry) -> tuple[str, ...]:
        """The chains that balance what an entry recognises, nearest first."""
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


_BEGINNINGS = {
    "iptables": re.compile(r"(?=^\*mangle$)", re.MULTILINE),
    "nftables": re.compile(r"^(?=table )", re.MULTILINE),
}


def by_family(mode: str, dump: str, families: Sequence[Family]) -> dict[Family, str]:
    """The part of a dump that is each family's; nothing of a family that has no rules."""
    parts = [part for part in _BEGINNINGS[mode].split(dump) if part.strip()]
    if mode == "nftables":
        named = {Family.IPV4: "table ip ", Family.IPV6: "table ip6 "}
        return {family: next((part for part in parts if part.startswith(named[family])), "") for family in families}
    whole = [part for part in parts if "*mangle" in part]  # each family is asked for mangle first
    return dict(zip(families, whole, strict=False))
