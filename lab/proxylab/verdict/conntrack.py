"""The verdict ``conntrack``, for probes and for steps: which entries an expectation means, and whether they exist."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import TableEntry
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.scenario.model import ConntrackExpect, Entries
from proxylab.verdict.case import Findings, Judged
from proxylab.verdict.model import Verdict

__all__ = [
    "OF_STREAMS",
    "entry_words",
    "expected_entries",
    "is_met",
    "judge_conntrack",
    "kind_words",
    "unwanted_entries",
]

_MOST_ENTRIES = 3

OF_STREAMS = frozenset({Transport.TCP, Transport.UDP, Transport.SCTP})
"""The protocols that steps mean where their author names none. Not ICMP: the lab's own sentinel packets use it."""

Addresses = Mapping[str, tuple[IPAddress, ...]]
"""The addresses of each name of the scenario."""


def is_met(wanted: ConntrackExpect, entries: Iterable[TableEntry], addresses: Addresses) -> bool:
    """Whether the tables hold an entry that they must hold, and none that they must not."""
    there = [entry for entry in entries if wanted.node in (None, entry.node)]
    nodes = list({entry.node: None for entry in there})
    some = wanted.some is None or bool(expected_entries(wanted, there, nodes, addresses))
    return some and not unwanted_entries(wanted, there, nodes, addresses)


def expected_entries(
    wanted: ConntrackExpect | None,
    tables: Iterable[TableEntry] | None,
    nodes: Sequence[str],
    addresses: Addresses,
    usual: Collection[Transport] = OF_STREAMS,
) -> list[TableEntry]:
    """The entries that match ``some``; see ``judge_conntrack`` for the arguments."""
    if wanted is None or wanted.some is None:
        return []
    there = nodes if wanted.node is None else (wanted.node,)
    return [each for each in tables or () if each.node in there and _fits(addresses, each, wanted.some, usual)]


def unwanted_entries(
    wanted: ConntrackExpect | None,
    tables: Iterable[TableEntry] | None,
    nodes: Sequence[str],
    addresses: Addresses,
    usual: Collection[Transport] = OF_STREAMS,
) -> list[TableEntry]:
    """The entries that match ``none``; see ``judge_conntrack`` for the arguments."""
    if wanted is None or wanted.none is None:
        return []
    there = nodes if wanted.node is None else (wanted.node,)
    return [each for each in tables or () if each.node in there and _fits(addresses, each, wanted.none, usual)]


def judge_conntrack(
    case: Judged,
    wanted: ConntrackExpect,
    tables: Iterable[TableEntry] | None,
    nodes: Sequence[str],
    addresses: Addresses,
    usual: Collection[Transport] = OF_STREAMS,
) -> Verdict:
    """The tables hold an entry that matches ``some``, and none that matches ``none``.

    Args:
        case: the probe or step.
        wanted: the expectation.
        tables: all entries of the nodes; ``None`` where the lab did not read them.
        nodes: of the lab.
        addresses: of the names of the scenario.
        usual: the protocols that count where the author names none.
    """
    findings = Findings()
    nodes = (wanted.node,) if wanted.node is not None else nodes
    where = listed(nodes, "or")
    if tables is None:
        findings.doubts_overall.append(f"the connection tracking of {where} was not read")
    entries = [entry for entry in tables or () if entry.node in nodes]
    some = expected_entries(wanted, entries, nodes, addresses, usual)
    none = unwanted_entries(wanted, entries, nodes, addresses, usual)
    if wanted.some is not None and not some:
        findings.missing_overall.append(f"no entry {kind_words(wanted.some)} on {where}")
    if none:
        findings.wrong_overall.append(f"{none[0].node} holds {entry_words(none[0])}")
    shown = [f"{entry_words(entry)} on {entry.node}" for entry in (*none, *some)[:_MOST_ENTRIES]]
    more = len(none) + len(some) - len(shown)
    return findings.settle(
        case,
        "conntrack",
        expected="; ".join(_expected(wanted)),
        observed=", ".join(shown) + (f", {more:,} more" if more else "") if shown else "no such entry",
        witnesses=[f"the tables of {where} hold {amount(len(entries), 'entry')}"],
    )


def _expected(wanted: ConntrackExpect) -> Iterator[str]:
    if wanted.some is not None:
        yield f"some {kind_words(wanted.some)}"
    if wanted.none is not None:
        yield f"none {kind_words(wanted.none)}"


def kind_words(entries: Entries) -> str:
    """The kind of entries, in words."""
    parts = [] if entries.protocol is None else [f"of {entries.protocol}"]
    if entries.original_from is not None:
        parts.append(f"from {entries.original_from}")
    if entries.port is not None:
        parts.append(f"to port {entries.port}")
    if entries.reply_from is not None:
        parts.append(f"answered by {entries.reply_from}")
    if entries.masqueraded is not None:
        parts.append("with a translated source" if entries.masqueraded else "with the sender's own source")
    return " ".join(parts) or "at all"


def entry_words(entry: TableEntry) -> str:
    """An entry: its protocol, source and destination, the address that answers, and a changed reply destination."""
    ends = f"{endpoint(entry.source, entry.source_port)} > {endpoint(entry.destination, entry.destination_port)}"
    flow = f"{entry.protocol} {ends}"
    answered = f"{flow}, answered by {endpoint(entry.reply_source, entry.reply_source_port)}"
    if not _is_masqueraded(entry):
        return answered
    return f"{answered} to {endpoint(entry.reply_destination, entry.reply_destination_port)}"


def _is_masqueraded(entry: TableEntry) -> bool:
    """Whether replies go to another address or port than the first packet's source."""
    return (entry.reply_destination, entry.reply_destination_port) != (entry.source, entry.source_port)


def _fits(addresses: Addresses, entry: TableEntry, wanted: Entries, usual: Collection[Transport]) -> bool:
    return (
        (entry.protocol in usual if wanted.protocol is None else entry.protocol is wanted.protocol)
        and (wanted.reply_from is None or entry.reply_source in _addresses(addresses, wanted.reply_from))
        and (wanted.original_from is None or entry.source in _addresses(addresses, wanted.original_from))
        and wanted.port in (None, entry.destination_port)
        and wanted.masqueraded in (None, _is_masqueraded(entry))
    )


def _addresses(addresses: Addresses, name: str) -> tuple[IPAddress, ...]:
    """The addresses of a name of the scenario, or the address that the text spells."""
    known = addresses.get(name)
    if known is not None:
        return known
    try:
        return (ip_address(name),)
    except ValueError:
        return ()
