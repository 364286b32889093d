"""Connection tracking at the end of a probe or step: the entries of all nodes, and which of them an author means."""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address

from msgspec import Struct

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import TableEntry
from proxylab.evidence.words import endpoint
from proxylab.scenario.expect import ConntrackExpect, Entries

_OF_STREAMS = frozenset({Transport.TCP, Transport.UDP, Transport.SCTP})
"""The protocols that steps mean where their author names none. Not ICMP: the lab's own sentinel packets use it."""


class ConntrackTables(Struct, frozen=True):
    """The connection tracking of a lab, and what reading an expectation about it takes.

    Attributes:
        entries: of all nodes; ``None`` where the lab did not read them.
        nodes: of the lab.
        addresses: of each name of the scenario.
        usual: the protocols that count where the author names none.
    """

    entries: tuple[TableEntry, ...] | None
    nodes: tuple[str, ...]
    addresses: Mapping[str, tuple[IPAddress, ...]]
    usual: Collection[Transport] = _OF_STREAMS

    def there(self, expected: ConntrackExpect) -> list[TableEntry]:
        """The entries of the nodes that an expectation is about."""
        nodes = self.about(expected)
        return [entry for entry in self.entries or () if entry.node in nodes]

    def about(self, expected: ConntrackExpect) -> tuple[str, ...]:
        """The nodes that an expectation is about."""
        return self.nodes if expected.node is None else (expected.node,)

    def some(self, expected: ConntrackExpect | None) -> list[TableEntry]:
        """The entries that match ``some``: there must be one."""
        return [] if expected is None else self._matching(expected, expected.some)

    def none(self, expected: ConntrackExpect | None) -> list[TableEntry]:
        """The entries that match ``none``: there must be none."""
        return [] if expected is None else self._matching(expected, expected.none)

    def _matching(self, expected: ConntrackExpect, kind: Entries | None) -> list[TableEntry]:
        return [] if kind is None else [entry for entry in self.there(expected) if self._fits(entry, kind)]

    def _fits(self, entry: TableEntry, kind: Entries) -> bool:
        return (
            (entry.protocol in self.usual if kind.protocol is None else entry.protocol is kind.protocol)
            and (kind.reply_from is None or entry.reply_source in self._addresses(kind.reply_from))
            and (kind.original_from is None or entry.source in self._addresses(kind.original_from))
            and kind.port in (None, entry.destination_port)
            and kind.masqueraded in (None, _is_masqueraded(entry))
        )

    def _addresses(self, name: str) -> tuple[IPAddress, ...]:
        """The addresses of a name of the scenario, or the address that the text spells."""
        if name in self.addresses:
            return self.addresses[name]
        try:
            return (ip_address(name),)
        except ValueError:
            return ()


def is_met(
    expected: ConntrackExpect, entries: Iterable[TableEntry], addresses: Mapping[str, tuple[IPAddress, ...]]
) -> bool:
    """Whether the tables hold an entry that they must hold, and none that they must not."""
    there = tuple(entries)
    tables = ConntrackTables(there, tuple({entry.node: None for entry in there}), addresses)
    return (expected.some is None or bool(tables.some(expected))) and not tables.none(expected)


def entry_words(entry: TableEntry) -> str:
    """An entry: its protocol, source and destination, the address that answers, and a changed reply destination."""
    ends = f"{endpoint(entry.source, entry.source_port)} > {endpoint(entry.destination, entry.destination_port)}"
    answered = f"{entry.protocol} {ends}, answered by {endpoint(entry.reply_source, entry.reply_source_port)}"
    if not _is_masqueraded(entry):
        return answered
    return f"{answered} to {endpoint(entry.reply_destination, entry.reply_destination_port)}"


def _is_masqueraded(entry: TableEntry) -> bool:
    """Whether replies go to another address or port than the first packet's source."""
    return (entry.reply_destination, entry.reply_destination_port) != (entry.source, entry.source_port)
