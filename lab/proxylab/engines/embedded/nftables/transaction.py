"""One load: the text for ``nft -f -`` that changes the kernel's table to a ruleset.

nft sends a whole text to the kernel as one transaction: a packet meets the table before it or after it. A full sync
writes every rule and element anew, into what the kernel already has. Sets that remember clients stay, and so do
connections. A partial sync writes the chains of changed service ports and the elements that differ.

A chain that is not used any more is emptied at once, and deleted by a later load. Before Linux 6.2, the kernel notices
only after a while that the element of a map no longer refers to a chain.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.cluster.objects import ObjectKey
from proxylab.engines.embedded.nftables.fixed import BASE_CHAINS
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.names import AFFINITY, TABLE, is_of_service
from proxylab.engines.embedded.nftables.rules import Element, PortRules, Ruleset
from proxylab.engines.embedded.proxier import Block, lines_of

_REFUSED: Final = re.compile(r"^\S*:(\d+):\d+-\d+: Error: (.*)", re.MULTILINE)
"""nft(8) names the place of an error as ``/dev/stdin:LINE:COLUMN-COLUMN:``."""


class Transaction(Struct, frozen=True):
    """The text of one load, in blocks without a final line feed.

    Attributes:
        blocks: each with its Service.
        used: chains that the text fills.
        stale: chains that the text empties, and that a later load is to delete.
        deleted: chains that the text deletes.
    """

    blocks: tuple[Block, ...]
    used: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join([f"{text}\n" for text, _ in self.blocks])

    @property
    def lines(self) -> tuple[tuple[str, ObjectKey | None], ...]:
        """Each line with its Service."""
        return lines_of(self.blocks)

    def explain(self, output: str) -> str:
        """The refused line, its Service, and nft's words."""
        found, lines = _REFUSED.search(output), self.lines
        if found is None or not 0 < int(found[1]) <= len(lines):
            return "nft refused the rules"
        (line, service), why = lines[int(found[1]) - 1], found[2]
        return f"nft refused{f' of {service}' if service else ''}: {line}: {why}; the table is as it was before"


def write_table(ruleset: Ruleset, present: Present, *, rehook: bool) -> Transaction:
    """The text of a full sync.

    Args:
        ruleset: the wanted table.
        present: the chains and sets that the kernel has now.
        rehook: delete the base chains first. nft cannot change the hook or priority of a chain that exists.
    """
    table, ports = _table(ruleset.family), ruleset.ports
    blocks: list[Block] = [(ruleset.fixed[0], None)]
    if rehook:
        blocks += [(f"add chain {table} {name}\ndelete chain {table} {name}", None) for name in BASE_CHAINS]
    blocks.append(("\n".join(ruleset.fixed[1:]), None))
    used = _chains_of(ports)
    stale = {name for name in present.chains if is_of_service(name)} - used
    # A set whose timeout differs is made again.
    gone = {(name, each) for name, each in present.sets.items() if name.startswith(AFFINITY)} - _sets_of(ports)
    blocks += [(f"flush chain {table} {name}", None) for name in sorted(filter(is_of_service, present.chains))]
    blocks += [(f"delete set {table} {name}", None) for name, _ in sorted(gone)]
    blocks += _declared(table, ports)
    blocks += _ruled(table, ports)
    owners = {element: port.service for port in ports for element in port.elements}
    blocks += [(_added(table, element, rest), owners[element]) for element, rest in ruleset.elements.items()]
    return Transaction(tuple(blocks), frozenset(used), frozenset(stale))


def write_changes(ruleset: Ruleset, loaded: Ruleset, expired: Iterable[str] = ()) -> Transaction:
    """The text of a partial sync.

    ``loaded`` has the same fixed part. No chain of ``expired`` goes that a service port uses again.
    """
    table = _table(ruleset.family)
    kept, stayed = {id(port) for port in ruleset.ports}, {id(port) for port in loaded.ports}
    # Unchanged service ports are the same object.
    new = [port for port in ruleset.ports if id(port) not in stayed]
    old = [port for port in loaded.ports if id(port) not in kept]
    # No other service port can have chains or sets of the same names, but another one may have the same element.
    used, sets = _chains_of(new), _sets_of(new)
    stale, gone = _chains_of(old) - used, _sets_of(old) - sets
    differing = [
        (element, before, wanted, port.service)
        for element, port in {element: port for port in (*old, *new) for element in port.elements}.items()
        if (before := loaded.elements.get(element)) != (wanted := ruleset.elements.get(element))
    ]
    deleted = frozenset(expired) - used
    blocks: list[Block] = [(f"delete chain {table} {name}", None) for name in sorted(deleted)]
    blocks += [(_deleted(table, element), None) for element, before, _, _ in differing if before is not None]
    blocks += [(f"flush chain {table} {name}", None) for name in sorted(_chains_of(old))]
    blocks += [(f"delete set {table} {name}", None) for name, _ in sorted(gone)]
    blocks += _declared(table, new)
    blocks += _ruled(table, new)
    blocks += [(_added(table, each, wanted), owner) for each, _, wanted, owner in differing if wanted is not None]
    return Transaction(tuple(blocks), frozenset(used), frozenset(stale), deleted)


def _table(family: Family) -> str:
    return f"{'ip' if family is Family.IPV4 else 'ip6'} {TABLE}"


def _chains_of(ports: Iterable[PortRules]) -> set[str]:
    return {name for port in ports for name in port.chains}


def _sets_of(ports: Iterable[PortRules]) -> set[tuple[str, int]]:
    return {each for port in ports for each in port.sets}


def _declared(table: str, ports: Iterable[PortRules]) -> Iterator[Block]:
    """The chains and sets, made or emptied; a set that exists keeps its clients."""
    address = "ipv4_addr" if table.startswith("ip ") else "ipv6_addr"
    for port in ports:
        lines = [f"add chain {table} {name}\nflush chain {table} {name}" for name in port.chains]
        lines += [
            f"add set {table} {name} {{ type {address} ; flags dynamic,timeout ; timeout {seconds}s ; }}"
            for name, seconds in port.sets
        ]
        if lines:
            yield "\n".join(lines), port.service


def _ruled(table: str, ports: Iterable[PortRules]) -> Iterator[Block]:
    for port in ports:
        if port.rules:
            yield "\n".join([f"add rule {table} {rule}" for rule in port.rules]), port.service


def _added(table: str, element: Element, rest: str) -> str:
    container, key = element
    return f"add element {table} {container} {{ {key}{rest} }}"


def _deleted(table: str, element: Element) -> str:
    container, key = element
    return f"delete element {table} {container} {{ {key} }}"
