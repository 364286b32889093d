"""What no verdict on connection tracking may pass, derived from entries without the verdict package.

It derives which entries an author means, and which passes over a table are wrong, for probes and steps. The caller
knows the addresses, and the protocols that count where the author names none.
"""

from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import TableEntry
from proxylab.scenario.expect import ConntrackExpect, Entries

__all__ = ["fits", "in_tables", "other_entries"]

Table = tuple[TableEntry, ...] | None
"""``None`` is a table that no run has read."""


def in_tables(wanted: ConntrackExpect, entries: Table) -> list[TableEntry]:
    """The entries of the nodes that the author means."""
    return [each for each in entries or () if wanted.node is None or each.node == wanted.node]


def fits(entry: TableEntry, wanted: Entries, named: Mapping[str, IPAddress], meant: Collection[Transport]) -> bool:
    """Whether an entry is of the kind that an author describes, who may call the ``named`` addresses by their names.

    ``meant`` are the protocols where the author names none.
    """
    if entry.protocol not in (meant if wanted.protocol is None else {wanted.protocol}):
        return False
    for name, end in ((wanted.reply_from, entry.reply_source), (wanted.original_from, entry.source)):
        if name is not None and end != (named[name] if name in named else ip_address(name)):
            return False
    if wanted.port is not None and entry.destination_port != wanted.port:
        return False
    changed = (entry.source, entry.source_port) != (entry.reply_destination, entry.reply_destination_port)
    return wanted.masqueraded is None or changed == wanted.masqueraded


def other_entries(
    wanted: ConntrackExpect, entries: Table, named: Mapping[str, IPAddress], meant: Collection[Transport]
) -> Iterator[str]:
    if entries is None:
        yield "the lab did not read the tables"
    there = in_tables(wanted, entries)
    if wanted.some is not None and not any(fits(each, wanted.some, named, meant) for each in there):
        yield "an entry is not there"
    if wanted.none is not None and any(fits(each, wanted.none, named, meant) for each in there):
        yield "an entry is there"
