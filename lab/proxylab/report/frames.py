"""``compared``: a packet that came otherwise than expected, beside the expected one, field by field.

A verdict names one thing that is wrong. An engineer wants to see the whole packet: what else changed tells which rule
did it. The fields follow from the expectations and from what the sender, or the endpoint that answers, sent. A field of
which nothing is expected is left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Observation, Packet, Part
from proxylab.evidence.words import endpoint, listed
from proxylab.scenario.words import Manner, Outcome, Reply
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow
from proxylab.verdict.hop_limits import HopLimits, ttl_word

_AS_SENT = "as sent"
_CHANGED = "changed on the way"
_MOST_ENDS = 3


class FrameField(NamedTuple):
    """One field of a packet: what was expected of it, and what was observed."""

    name: str
    expected: str
    observed: str
    differs: bool


class ComparedFrame(NamedTuple):
    """A packet as a tap saw it at the end of its way, beside the expected one; ``where`` is ``NETNS/DEVICE``."""

    packet: Packet
    where: str
    fields: tuple[FrameField, ...]

    @property
    def title(self) -> str:
        return f"the {self.packet} as it came to {self.where}"


def compared(case: Case, flow: Flow) -> ComparedFrame | None:
    """The first packet of a flow, there and then back, of which any field differs; ``None`` where none does."""
    for packet in (Packet.REQUEST, Packet.REPLY):
        seen = next(iter(flow.arrivals if packet is Packet.REQUEST else flow.replies), None)
        if seen is None or case.expect.outcome is not Outcome.DELIVERED:
            continue
        fields = tuple(_of_request(case, flow, seen) if packet is Packet.REQUEST else _of_reply(case, flow, seen))
        if any(each.differs for each in fields):
            return ComparedFrame(packet, f"{seen.netns_name}/{seen.device}", fields)
    return None


def answerer(case: Case, flow: Flow) -> tuple[IPAddress, int]:
    """The source address and port that the reply should have."""
    if flow.arrivals and case.expect.reply_from(flow.reached[0]) is Reply.UNTRANSLATED:
        return flow.arrivals[0].destination, flow.arrivals[0].destination_port
    return case.dialled


def client_end(case: Case, flow: Flow) -> str:
    """The client's address and port, to which the reply should go."""
    left = flow.departures[0] if flow.departures else None
    return endpoint(case.resolved.sender.address_of_flow(flow.number), left.source_port if left else 0)


def _of_request(case: Case, flow: Flow, seen: Observation) -> Iterator[FrameField]:
    source, ends = case.expected_source(flow), case.expected_ends
    if source is not None:
        yield _field("from", str(source), str(seen.source))
    if ends.is_known:
        own = (seen.destination, seen.destination_port)
        is_right = ends.allow(seen.netns_name, own) and case.expect.allows_backend(seen.netns_name, own[1])
        instead = [endpoint(*end) for end in ends.instead_of(seen.destination)]
        shown = listed(instead, "or") if len(instead) <= _MOST_ENDS else f"any of {len(instead):,} endpoints"
        if not case.expect.allows_backend(seen.netns_name, own[1]):
            shown = listed(list(map(str, case.expect.backends or ())), "or")
        yield FrameField("to", endpoint(*own) if is_right else shown, endpoint(*own), not is_right)
    yield from _of_header(case, flow, Packet.REQUEST, flow.departures[:1], seen)


def _of_reply(case: Case, flow: Flow, seen: Observation) -> Iterator[FrameField]:
    yield _field("from", endpoint(*answerer(case, flow)), endpoint(seen.source, seen.source_port))
    if flow.departures:
        yield _field("to", client_end(case, flow), endpoint(seen.destination, seen.destination_port))
    yield from _of_header(case, flow, Packet.REPLY, flow.answers[:1], seen)


def _of_header(
    case: Case, flow: Flow, packet: Packet, left: tuple[Observation, ...], seen: Observation
) -> Iterator[FrameField]:
    """What a proxy has no part in: time to live, DSCP and data."""
    ttl = HopLimits(case.resolved, case.evidence).expected(flow, packet)
    if ttl is not None:
        yield _field(ttl_word(seen.source.version), str(ttl), str(seen.ttl))
    for each in left:
        relayed = flow.relayed is not None
        if each.ttl and seen.ttl and not relayed:
            yield _field("DSCP", str(each.dscp), str(seen.dscp))
    found = [each for each in case.evidence.altered if each.flow == flow.number and each.packet is packet]
    for altered in found:
        if altered.part is Part.DATA:
            yield FrameField("data", altered.sent or _AS_SENT, altered.seen or _CHANGED, True)
        elif altered.part is Part.CHECKSUM:
            yield FrameField("IP checksum", "right", "wrong", True)
    bears_data = case.resolved.manner is Manner.CONNECT or case.resolved.protocol in (Transport.UDP, Transport.ICMP)
    if bears_data and not any(each.part is Part.DATA for each in found):
        yield FrameField("data", _AS_SENT, _AS_SENT, False)


def _field(name: str, expected: str, observed: str) -> FrameField:
    return FrameField(name, expected, observed, expected != observed)
