"""Connections that are open while another proxy takes over: which to open, and what becomes of each.

A connection is a stream through two steps: the old proxy serves it in the first, and in the second every node changes
to the new one. A stream repeats a question that an audit of the old proxy found delivered.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from ipaddress import ip_network
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.stream_records import StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount
from proxylab.features.audit.findings import AuditAnswer
from proxylab.features.audit.senders import SenderKind
from proxylab.scenario.change import Change
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import RoutedAddress
from proxylab.scenario.node_engines import EngineChange
from proxylab.scenario.probes import Send, ServiceTarget, Stream
from proxylab.scenario.steps import Count, Step, StepExpect, StreamExpect
from proxylab.scenario.words import Frontend, Outcome, Position
from proxylab.verdict.model import Judgement, StepVerdict

_MOST_AT_ONCE: Final = 100
_MOST: Final = 1_000
"""So many connections are open at once, and so many in all labs, one after the other."""
_EVERY: Final = 20
"""Milliseconds between two packets of a connection."""
_SENDERS: Final = (SenderKind.NEAR, SenderKind.FAR, SenderKind.OUTSIDE)
_NONE: Final = Count(at_most=0)
_AT_NO_NODE: Final = (Frontend.EXTERNAL_IP, Frontend.LOAD_BALANCER_IP)
"""The frontends whose addresses only a router leads to nodes."""


class OpenConnection(Struct, frozen=True):
    """A connection that is open during the switch: the question that it repeats, and its stream."""

    service: str
    frontend: str
    kind: SenderKind
    stream: Stream


class ConnectionFate(StrEnum):
    """What becomes of an open connection."""

    SURVIVES = "survives"
    DISTURBED = "loses packets, and goes on"
    ENDS = "ends"
    UNDECIDED = "undecided"


class SwitchedConnection(Struct, frozen=True):
    """What became of a connection, and what was seen of it where it did not simply survive."""

    connection: OpenConnection
    fate: ConnectionFate
    seen: str = ""


class Switch(Struct, frozen=True, kw_only=True):
    """What became of open connections.

    Attributes:
        connections: those that were open.
        left_out: how many further ones stayed closed, so that a certificate takes minutes.
        untried: why the lab opened none; empty if it did.
    """

    connections: tuple[SwitchedConnection, ...] = ()
    left_out: int = 0
    untried: str = ""

    def of(self, fate: ConnectionFate) -> list[SwitchedConnection]:
        return [each for each in self.connections if each.fate is fate]


def connections_of(answers: Iterable[AuditAnswer]) -> list[OpenConnection]:
    """The connections to open: of each Service one from a pod, and one from outside at each kind of frontend.

    SCTP has no sockets on most machines, so its questions stay out.
    """
    found: dict[tuple[str, Frontend, Transport | None, int | None], OpenConnection] = {}
    for answer in answers:
        question, probe = answer.question, answer.verdict.case.probe
        target = probe.target
        if (
            answer.judgement is not Judgement.PASS
            or probe.expect.outcome is not Outcome.DELIVERED
            or question.kind not in _SENDERS
            or not isinstance(target, ServiceTarget)
            or target.via is Frontend.HEALTH_CHECK_NODE_PORT
            or probe.send.protocol not in (Transport.TCP, Transport.UDP)
            or (question.kind is SenderKind.OUTSIDE) is (target.via is Frontend.CLUSTER_IP)
        ):
            continue
        version = target.address.version if target.address is not None else None
        key = question.service, target.via, probe.send.protocol, version
        if key not in found:
            name = f"open-{len(found) + 1}"
            send = Send(protocol=probe.send.protocol, every=_EVERY)
            stream = Stream(name=name, source=probe.source, target=target, send=send, position=probe.position)
            found[key] = OpenConnection(question.service, question.frontend, question.kind, stream)
    return list(found.values())


def rounds(connections: list[OpenConnection]) -> list[list[OpenConnection]]:
    """Those that one lab after the other keeps open; evenly from all where there are too many."""
    count = min(len(connections), _MOST)
    opened = [connections[number * len(connections) // count] for number in range(count)]
    return [opened[first : first + _MOST_AT_ONCE] for first in range(0, count, _MOST_AT_ONCE)]


def with_switch(scenario: Scenario, connections: Iterable[OpenConnection], new: str) -> Scenario:
    """The scenario with these streams, and two steps: the old proxies serve them, and then all nodes run ``new``."""
    at = Position(scenario.file, 1, 1)
    undisturbed = StreamExpect(lost=_NONE, rejected=_NONE, resets=_NONE, position=at)
    streams = tuple(each.stream for each in connections)
    expect = StepExpect(streams={each.name: undisturbed for each in streams}, position=at)
    before = Step(name="open connections reach their Services", expect=expect, position=at)
    engines = {node.name: EngineChange(engine=new) for node in scenario.nodes}
    after = replace(before, name=f"all nodes change to {new}", change=Change(engines=engines))
    routed = (*_routed(scenario, streams), *scenario.network.routed)
    return replace(
        scenario, probes=(), streams=streams, steps=(before, after), network=replace(scenario.network, routed=routed)
    )


def _routed(scenario: Scenario, streams: Iterable[Stream]) -> Iterator[RoutedAddress]:
    """The ways of streams from outside to addresses that no node has, by the node by which their questions went.

    The router has a route of its own for a probe, one after the other; streams are open at once.
    """
    by_address: dict[IPAddress, str] = {}
    for target in (each.target for each in streams):
        if isinstance(target, ServiceTarget) and target.via in _AT_NO_NODE and target.address and target.node:
            by_address.setdefault(target.address, target.node)
    pools = [network for each in scenario.load_balancers for network in each.pool]
    for address, node in by_address.items():
        if not any(address in pool for pool in pools):  # the balancer's own routes lead there
            yield RoutedAddress(network=ip_network(address), nodes=(node,), position=Position(scenario.file, 1, 1))


def switched(connections: Iterable[OpenConnection], before: StepVerdict, after: StepVerdict) -> Switch:
    """What became of each connection, by the verdicts on the two steps."""
    records = {each.stream: each for each in after.evidence.streams}
    told = tuple(_switched(each, before, after, records) for each in connections)
    return Switch(connections=told)


def _switched(
    connection: OpenConnection, before: StepVerdict, after: StepVerdict, records: Mapping[str, StreamRecord]
) -> SwitchedConnection:
    name = connection.stream.name
    if early := list(_unlike_promised(name, before)):
        return SwitchedConnection(connection, ConnectionFate.UNDECIDED, f"before the change: {early[0][1]}")
    found, record = list(_unlike_promised(name, after)), records[name]
    failed = [seen for judgement, seen in found if judgement is Judgement.FAIL]
    if record.breaks and not failed:  # the stream has opened another connection since
        failed = [f"connection {record.breaks[0].kind}"]
    if failed:
        goes_on = not record.breaks and record.packets[-1].fate is StreamPacketFate.ANSWERED
        fate = ConnectionFate.DISTURBED if goes_on else ConnectionFate.ENDS
        return SwitchedConnection(connection, fate, f"{'; '.join(failed)}, of {amount(len(record.packets), 'packet')}")
    if found:
        return SwitchedConnection(connection, ConnectionFate.UNDECIDED, found[0][1])
    return SwitchedConnection(connection, ConnectionFate.SURVIVES)


def _unlike_promised(stream: str, step: StepVerdict) -> Iterator[tuple[Judgement, str]]:
    """The judgement of each expectation of the stream that did not pass, and what was seen, or why it is unclear."""
    for verdict in step.verdicts:
        of, _, key = verdict.expectation.partition(".")
        if of == stream and verdict.judgement is not Judgement.PASS:
            seen = f"{key} {verdict.observed or 'nothing'}"
            is_open = verdict.judgement is not Judgement.FAIL and verdict.reasons
            yield verdict.judgement, verdict.reasons[0] if is_open else seen
