"""What a step did to its streams and what it expects of them, as the document that ``programs/step.py`` reads.

Owns: the shape of that document, and what follows from evidence: where each stream went when the step began, and
whether the proxy has made the nodes forget it.
Must not: judge, or know the words of iproute2.

Proxies delete entries of UDP when an endpoint goes. A script has no proxy, so that it did is read from what was seen:
the stream was answered by one pod when the step began, and when it ended no node knew it as that pod's any more.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final

from lab.ip import IPAddress, Protocol, Transport
from lab.plan.errand import Errand
from lab.plan.model import Listener, Namespace, Plan
from lab.plan.reach import Absences
from lab.report.reproduction.case import MOST_FRAMES
from lab.scenario.model import ConntrackExpect, Count, Entries, StreamExpect
from lab.verdict.evidence import TableEntry, TrackedFlow
from lab.verdict.model import StepVerdict
from lab.verdict.pulses import StreamRecord
from lab.verdict.tables import kind_words

__all__ = ["entry_case", "step_case", "tables_case"]

_LONGEST: Final = 20.0
"""A step that waited for longer, in seconds, is not waited for so long again."""

_TABLES: Final = (Protocol.TCP.number, Protocol.UDP.number)


def step_case(verdict: StepVerdict, plan: Plan, before: Absences, after: Absences) -> dict[str, Any]:
    """The document. ``plan`` is what is rebuilt; the absences are those before the step's change, and with it."""
    evidence, errands = verdict.evidence, {each.name: each for each in verdict.streams}
    conntrack = verdict.step.expect.conntrack
    elapsed = ((verdict.step.until.elapsed if verdict.step.until else None) or 0) / 1000
    return {
        "nodes": list(verdict.nodes),
        "lasts": round(min(_LONGEST, max(elapsed, (evidence.settled - evidence.changed) / 1e9)), 3),
        "gone": sorted(after.gone - before.gone),
        "streams": [_stream(verdict, errands[each.stream], each) for each in evidence.streams],
        "remembered": list(_strangers(verdict, plan)),
        "listeners": list(_listeners(plan)),
        "conntrack": None if conntrack is None else tables_case(conntrack, verdict.nodes, verdict.addresses, _TABLES),
    }


def _stream(verdict: StepVerdict, errand: Errand, record: StreamRecord) -> dict[str, Any]:
    first = record.pulses[0] if record.pulses else None
    began_at = first.backend if first is not None else ""
    by_udp = errand.protocol is Transport.UDP
    own = {address for name, all_of in verdict.addresses.items() if name == began_at for address in all_of}
    still = [each for each in record.tracked if not own or each.reply_source in own]
    return {
        "name": errand.name,
        "namespace": errand.sender.namespace,
        "device": errand.sender.device,
        "address": str(errand.sender.address),
        "port": record.port if by_udp else errand.sender.port or 0,
        "dialled": str(errand.destination),
        "dialled port": errand.port,
        "protocol": str(errand.protocol),
        "every": errand.every,
        "payload": errand.payload,
        "binds": began_at,
        "forgotten": by_udp and bool(began_at) and not still,
        "remembered": [
            entry_case(_entry_of(errand, record.port, each), errand.protocol_number) for each in still if by_udp
        ],
        "expect": _expected(verdict.step.expect.streams.get(errand.name), verdict.sources.get(errand.name)),
    }


def _entry_of(errand: Errand, port: int, tracked: TrackedFlow) -> TableEntry:
    dialled = (errand.sender.address, port, errand.destination, errand.port)
    answers = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination)
    return TableEntry(tracked.node, *dialled, *answers, tracked.reply_destination_port)


def _expected(expect: StreamExpect | None, source: IPAddress | None) -> dict[str, Any]:
    return {
        "backend": (expect.backend if expect else None) or "",
        "backends": list((expect.backends if expect else None) or ()),
        "source": str(source) if source is not None else "",
        "lost": _bounds(expect.lost if expect else None),
        "rejected": _bounds(expect.rejected if expect else None),
        "resets": _bounds(expect.resets if expect else None),
        "delay": expect.delay if expect else None,
    }


def _bounds(count: Count | None) -> tuple[int, int | None] | None:
    return None if count is None else (count.at_least, count.at_most)


def _strangers(verdict: StepVerdict, plan: Plan) -> Iterator[dict[str, Any]]:
    """Entries that are no stream's: somebody has left them before, and they are put back.

    Nobody noted their protocol: it is that by which their answerer listens.
    """
    dialled = {(each.sender.address, each.destination, each.port) for each in verdict.streams}
    senders = {each.name: each.sender.address for each in verdict.streams}
    own = {(senders[each.stream], each.port) for each in verdict.evidence.streams}
    own |= {
        (known.reply_destination, known.reply_destination_port)
        for each in verdict.evidence.streams
        for known in each.tracked
    }
    served = {
        (address, each.port): each.protocol.number
        for namespace in plan.namespaces
        for each in namespace.listeners
        for address in _addresses_of(namespace, each)
    }
    for entry in tuple(dict.fromkeys(verdict.evidence.entries or ()))[:MOST_FRAMES]:
        number = served.get((entry.reply_source, entry.reply_source_port))
        is_own = (entry.source, entry.source_port) in own
        if number and not is_own and (entry.source, entry.destination, entry.destination_port) not in dialled:
            yield entry_case(entry, number)


def _addresses_of(namespace: Namespace, listener: Listener) -> list[IPAddress]:
    """Where somebody listens."""
    return [each.interface.ip for each in namespace.addresses] if listener.address is None else [listener.address]


def entry_case(entry: TableEntry, protocol: int) -> dict[str, Any]:
    """An entry of connection tracking, as ``programs/memory.py`` puts it back."""
    return {
        "namespace": entry.node,
        "protocol": protocol,
        "from": (str(entry.source), entry.source_port),
        "to": (str(entry.destination), entry.destination_port),
        "answers": (str(entry.reply_source), entry.reply_source_port),
        "answers to": (str(entry.reply_destination), entry.reply_destination_port),
    }


def _listeners(plan: Plan) -> Iterator[dict[str, Any]]:
    """Everybody who listens, on all addresses of each family that his namespace has."""
    for namespace in plan.namespaces:
        for each in namespace.listeners:
            for version in sorted({address.version for address in _addresses_of(namespace, each)}):
                yield {
                    "namespace": namespace.name,
                    "name": each.name,
                    "protocol": str(each.protocol),
                    "version": version,
                    "address": str(each.address) if each.address else "",
                    "port": each.port,
                    "says": [],
                }


def tables_case(
    wanted: ConntrackExpect,
    nodes: Iterable[str],
    addresses: Mapping[str, tuple[IPAddress, ...]],
    protocols: Iterable[int],
) -> dict[str, Any]:
    """What connection tracking must hold, as ``programs/tables.py`` reads it."""
    return {
        "nodes": list(nodes) if wanted.node is None else [wanted.node],
        "protocols": list(protocols),
        "some": _entries(wanted.some, addresses),
        "none": _entries(wanted.none, addresses),
    }


def _entries(wanted: Entries | None, addresses: Mapping[str, tuple[IPAddress, ...]]) -> dict[str, Any] | None:
    if wanted is None:
        return None

    def those_of(name: str | None) -> list[str] | None:
        if name is None:
            return None
        return [str(each) for each in addresses.get(name) or (ip_address(name),)]

    return {
        "words": kind_words(wanted),
        "reply from": those_of(wanted.reply_from),
        "original from": those_of(wanted.original_from),
        "port": wanted.port,
        "masqueraded": wanted.masqueraded,
    }
