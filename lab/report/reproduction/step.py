"""What a step did to its streams and what it expects of them, as the document that ``programs/step.py`` reads.

Owns: the shape of that document, and what follows from evidence: where each stream went when the step began, and
whether the proxy has made the nodes forget it.
Must not: judge, or know the words of iproute2.

Proxies delete entries of UDP when an endpoint goes. A script has no proxy, so that it did is read from what was seen:
the stream was answered by one pod when the step began, and when it ended no node knew it as that pod's any more.
"""

from collections.abc import Iterator
from typing import Any, Final

from lab.ip import IPAddress, Transport
from lab.plan.errand import Errand
from lab.plan.model import Listener, Namespace, Plan
from lab.plan.reach import Absences
from lab.report.reproduction.entries import entry_case, entry_of, strangers, tables_case
from lab.scenario.model import Count, StreamExpect
from lab.verdict.model import StepVerdict
from lab.verdict.pulses import StreamRecord

__all__ = ["step_case"]

_LONGEST: Final = 20.0
"""A step that waited for longer, in seconds, is not waited for so long again."""


def step_case(verdict: StepVerdict, plan: Plan, before: Absences, after: Absences) -> dict[str, Any]:
    """The document. ``plan`` is what is rebuilt; the absences are those before the step's change, and with it."""
    evidence, errands = verdict.evidence, {each.name: each for each in verdict.streams}
    conntrack = verdict.step.expect.conntrack
    elapsed = ((verdict.step.until.elapsed if verdict.step.until else None) or 0) / 1000
    return {
        "nodes": list(verdict.nodes),
        "lasts": round(min(_LONGEST, max(elapsed, (evidence.settled - evidence.changed) / 1e9)), 3),
        "gone": sorted(after.gone - before.gone),
        "streams": [_stream(verdict, plan, errands[each.stream], each) for each in evidence.streams],
        "remembered": list(_left_by_others(verdict)),
        "listeners": list(_listeners(plan)),
        "conntrack": None if conntrack is None else tables_case(conntrack, verdict.nodes, verdict.addresses),
    }


def _stream(verdict: StepVerdict, plan: Plan, errand: Errand, record: StreamRecord) -> dict[str, Any]:
    first = record.pulses[0] if record.pulses else None
    began_at = first.backend if first is not None else ""
    by_udp = errand.protocol is Transport.UDP
    own = _endpoints_of(began_at, errand, plan)
    still = [each for each in record.tracked if not own or (each.reply_source, each.reply_source_port) in own]
    return {
        "name": errand.name,
        "namespace": errand.sender.namespace,
        "device": errand.sender.device,
        "address": str(errand.sender.address),
        "port": record.port if by_udp else errand.sender.port or 0,
        "first port": record.port,
        "dialled": str(errand.destination),
        "dialled port": errand.port,
        "protocol": str(errand.protocol),
        "every": errand.every,
        "payload": errand.payload,
        "binds": began_at,
        "bound to": next(((str(address), port) for address, port in own), None),
        "seen as": (str(first.peer), first.peer_port) if first is not None and first.peer is not None else ("", 0),
        "forgotten": by_udp and bool(began_at) and not still,
        "remembered": [entry_case(entry_of(errand, record.port, each)) for each in still if by_udp],
        "expect": _expected(verdict.step.expect.streams.get(errand.name), verdict.sources.get(errand.name)),
    }


def _endpoints_of(name: str, errand: Errand, plan: Plan) -> list[tuple[IPAddress, int]]:
    """Where somebody serves what a stream asks, in its family: one pod may do so by two names, on two ports."""
    return [
        (address, each.port)
        for namespace in plan.namespaces
        for each in namespace.listeners
        if each.name == name and each.protocol is errand.protocol.served
        for address in _addresses_of(namespace, each)
        if address.version == errand.destination.version
    ]


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


def _left_by_others(verdict: StepVerdict) -> Iterator[dict[str, Any]]:
    """Entries that are no stream's: somebody has left them before, and they are put back."""
    dialled = {(each.sender.address, each.destination, each.port) for each in verdict.streams}
    senders = {each.name: each.sender.address for each in verdict.streams}
    own = {(senders[each.stream], each.port) for each in verdict.evidence.streams}
    for each in verdict.evidence.streams:
        own |= {(known.reply_destination, known.reply_destination_port) for known in each.tracked}
    for entry in strangers(verdict.evidence.entries or (), own):
        if (entry.source, entry.destination, entry.destination_port) not in dialled:
            yield entry_case(entry)


def _addresses_of(namespace: Namespace, listener: Listener) -> list[IPAddress]:
    """Where somebody listens."""
    return [each.interface.ip for each in namespace.addresses] if listener.address is None else [listener.address]


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
