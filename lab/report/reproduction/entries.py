"""Entries of connection tracking in the documents of reproductions: what is put back, and what is expected.

Owns: how ``programs/memory.py`` reads an entry, and ``programs/tables.py`` what tables must hold.
Must not: judge.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final

from lab.ip import IPAddress, Transport
from lab.plan.errand import Errand
from lab.scenario.model import ConntrackExpect, Entries
from lab.verdict.evidence import TableEntry, TrackedFlow
from lab.verdict.tables import OF_STREAMS, kind_words

__all__ = ["entry_case", "entry_of", "strangers", "tables_case"]

_MOST: Final = 4096
"""So many entries are put back at most: more would take longer to read than to believe."""


def entry_case(entry: TableEntry) -> dict[str, Any]:
    """An entry as it is put back."""
    return {
        "namespace": entry.node,
        "protocol": entry.protocol.number(entry.source.version),
        "from": (str(entry.source), entry.source_port),
        "to": (str(entry.destination), entry.destination_port),
        "answers": (str(entry.reply_source), entry.reply_source_port),
        "answers to": (str(entry.reply_destination), entry.reply_destination_port),
    }


def entry_of(errand: Errand, port: int, tracked: TrackedFlow) -> TableEntry:
    """What a node remembers of a flow, as an entry of its table."""
    dialled = (errand.sender.of(tracked.flow), port, errand.destination, errand.port)
    answers = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination)
    return TableEntry(tracked.node, errand.protocol, *dialled, *answers, tracked.reply_destination_port)


def strangers(entries: Iterable[TableEntry], own: Collection[tuple[IPAddress, int]]) -> Iterator[TableEntry]:
    """The entries of others than ``own``, as which the flows in question left somebody: those were there before.

    No script puts back who asked by echo requests: it needs a port to do so.
    """
    there = (each for each in dict.fromkeys(entries) if each.protocol in OF_STREAMS)
    for entry in islice(there, _MOST):
        if (entry.source, entry.source_port) not in own:
            yield entry


def tables_case(
    wanted: ConntrackExpect,
    nodes: Iterable[str],
    addresses: Mapping[str, tuple[IPAddress, ...]],
    usual: Collection[Transport] = OF_STREAMS,
) -> dict[str, Any]:
    """What tables must hold; for the arguments see ``lab.verdict.tables.judge_conntrack``."""
    return {
        "nodes": list(nodes) if wanted.node is None else [wanted.node],
        "some": _wanted(wanted.some, addresses, usual),
        "none": _wanted(wanted.none, addresses, usual),
    }


def _wanted(
    wanted: Entries | None, addresses: Mapping[str, tuple[IPAddress, ...]], usual: Collection[Transport]
) -> dict[str, Any] | None:
    if wanted is None:
        return None
    protocols = usual if wanted.protocol is None else (wanted.protocol,)
    return {
        "words": kind_words(wanted),
        "protocols": sorted({each.number(version) for each in protocols for version in (4, 6)}),
        "reply from": _those_of(wanted.reply_from, addresses),
        "original from": _those_of(wanted.original_from, addresses),
        "port": wanted.port,
        "masqueraded": wanted.masqueraded,
    }


def _those_of(name: str | None, addresses: Mapping[str, tuple[IPAddress, ...]]) -> list[str] | None:
    if name is None:
        return None
    return [str(each) for each in addresses.get(name) or (ip_address(name),)]
