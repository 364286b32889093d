"""The path of one packet, hop by hop, and what the rules did to it.

The table of hops has an extra row where the expectations differ from what the taps saw. It follows from the
expectations alone, not from the verdicts. A second table lists the rule actions.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import STACK
from proxylab.report.frames import answerer, client_end
from proxylab.report.view import ProbeView
from proxylab.scenario.words import Outcome, Reply
from proxylab.text import WIDTH, table, width_of, wrapped
from proxylab.verdict.case import Case
from proxylab.verdict.counted_rules import short
from proxylab.verdict.drops import reason_words, reported_drop
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import expectations

_MOST_HOPS = 16
_MOST_ACTIONS = 8
_MOST_BRIEFLY = 4
_INDENT = "  "
_DITTO = ""
_EXPECTED = "expected"
_MISSING = "expected, not seen"


class HopRow(NamedTuple):
    """A row: where a packet was seen, its kind, and its addresses with ports; cells may be empty, or words."""

    hop: str
    packet: str
    source: str
    destination: str


def frame_table(view: ProbeView, width: int = WIDTH) -> list[str]:
    """The packet that came otherwise than expected, field by field beside the expected one; empty without one."""
    found = view.frame
    if found is None:
        return []
    rows = [("", "expected", "observed")]
    rows += [(each.name, each.expected, each.observed + ("*" if each.differs else "")) for each in found.fields]
    return [f"{_INDENT}{found.title} (* differs):", *table(rows, _INDENT * 2, width=width)]


def hop_table(view: ProbeView, width: int = WIDTH) -> list[str]:
    """One packet, hop by hop, with a star where an address changed since the hop before.

    Of many flows the table shows only one that shows what went wrong.
    """
    case, flow, seen = view.verdict.case, view.flow, view.hops
    told = testimony(case, flow, view.verdict.traced)
    if not seen or (len(case.flows) > 1 and view.example is None):
        return []
    rows = [HopRow("hop", "packet", "from", "to"), *_rows(case, flow, seen[:_MOST_HOPS])]
    return [
        _INDENT + _which(case, flow),
        *_aligned(rows, width),
        *_rest(seen, rows),
        *chain.from_iterable(wrapped(clause, _INDENT * 2, width=width) for clause in told),
    ]


def _rest(seen: tuple[Observation, ...], rows: list[HopRow]) -> Iterator[str]:
    """The line below the table: how much it leaves out, or that no tap saw more."""
    if len(seen) > _MOST_HOPS:
        yield f"{_INDENT * 2}and {amount(len(seen) - _MOST_HOPS, 'more packet')}"
    elif seen[-1].packet is Packet.REQUEST and seen[-1].direction is Direction.OUT and rows[-1][0] != _MISSING:
        yield f"{_INDENT * 2}no tap saw it again"


def _aligned(rows: list[HopRow], width: int) -> list[str]:
    if width_of(rows) <= width - 2 * len(_INDENT):
        return table(rows, _INDENT * 2, width=width)
    return table([(hop, packet, _way(*ends)) for hop, packet, *ends in rows], _INDENT * 2, width=width)


def _way(source: str, destination: str) -> str:
    if source and destination:
        return f"{source} > {destination}"
    return f"from {source}" if source else f"to {destination}" if destination else ""


def _which(case: Case, flow: Flow) -> str:
    changed = "* changed since the hop before"
    if len(case.flows) == 1:
        return f"the packet, hop by hop ({changed}):"
    return f"flow {flow.number:,}, hop by hop ({changed}):"


def _rows(case: Case, flow: Flow, seen: tuple[Observation, ...]) -> Iterator[HopRow]:
    before: dict[Packet, tuple[str, str]] = {}
    for each in seen:
        ends = _ends(each)
        earlier = before.get(each.packet, ends)
        before[each.packet] = ends
        source, destination = (end + ("*" if end != old else "") for end, old in zip(ends, earlier, strict=True))
        what = f"{each.packet} {each.icmp[0]}/{each.icmp[1]}" if each.icmp else str(each.packet)
        device = "proxy" if each in flow.relays or (each in flow.tries and each.device == STACK) else each.device
        yield HopRow(f"{each.netns_name} {device} {each.direction}", what, source, destination)
        yield from _expected_row(case, flow, each)
    if len(seen) < _MOST_HOPS:
        yield from missing(case, flow)


def _expected_row(case: Case, flow: Flow, seen: Observation) -> Iterator[HopRow]:
    """The expectation of a packet that a tap saw, in the columns that differ."""
    expect = case.expect
    if seen in flow.arrivals and expect.outcome in (Outcome.DELIVERED, Outcome.REFUSED):
        address, ends = case.expected_source(flow), case.expected_ends
        source = str(address) if address and seen.source != address else _DITTO
        is_right = ends.allow(seen.netns_name, (seen.destination, seen.destination_port))
        instead = [] if is_right else [endpoint(*end) for end in ends.instead_of(seen.destination)]
        netns_name = listed(instead, "or") if instead else _DITTO
        if not expect.allows_backend(seen.netns_name, seen.destination_port):
            netns_name = listed(list(map(str, expect.backends or ())), "or")
        if source or netns_name:
            yield HopRow(_EXPECTED, _DITTO, source, netns_name)
    elif seen in flow.replies and (seen.source, seen.source_port) != answerer(case, flow):
        yield HopRow(_EXPECTED, _DITTO, endpoint(*answerer(case, flow)), _DITTO)
    elif case.ends_beyond_nodes:
        return
    elif seen in (*flow.arrivals, *flow.strays) and expect.outcome in (Outcome.DROPPED, Outcome.REJECTED):
        yield HopRow(_EXPECTED, f"{expect.outcome} before", _DITTO, _DITTO)


def missing(case: Case, flow: Flow) -> Iterator[HopRow]:
    """The first expected packet that no tap saw; the later ones depend on it."""
    expect, resolved = case.expect, case.resolved
    if "outcome" not in expectations(expect):
        return
    dialled, client = endpoint(*answerer(case, flow)), client_end(case, flow)
    match expect.outcome:
        case Outcome.DELIVERED if not flow.arrivals:
            netns_name = listed(list(map(str, expect.backends or ["a pod"])), "or")
            yield HopRow(_MISSING, str(Packet.REQUEST), str(case.expected_source(flow) or _DITTO), netns_name)
        case Outcome.DELIVERED if expect.reply_from(flow.reached[0]) is Reply.NONE:
            return
        case Outcome.DELIVERED if not flow.answers:
            pod = flow.arrivals[-1]
            reply = endpoint(pod.destination, pod.destination_port), endpoint(pod.source, pod.source_port)
            yield HopRow(_MISSING, str(Packet.REPLY), *reply)
        case Outcome.DELIVERED if not flow.replies and expect.reply_from(flow.reached[0]) is not Reply.LOST:
            yield HopRow(_MISSING, str(Packet.REPLY), dialled, client)
        case Outcome.CLOSED if not flow.closings:
            yield HopRow(_MISSING, str(Packet.CLOSE), dialled, client)
        case Outcome.REFUSED if not flow.resets:
            yield HopRow(_MISSING, str(Packet.RESET), dialled, client)
        case Outcome.REJECTED if not flow.unreachables:
            yield HopRow(_MISSING, str(Packet.PORT_UNREACHABLE), "a node", str(resolved.sender.address))


def _ends(seen: Observation) -> tuple[str, str]:
    return endpoint(seen.source, seen.source_port), endpoint(seen.destination, seen.destination_port)


def testimony(case: Case, flow: Flow, traced: Evidence | None) -> Iterator[str]:
    """The other witnesses of a flow: sockets, connection tracking, and the kernel's drop reason for a traced packet."""
    yield from _sockets(flow)
    yield from _tracked(case, flow)
    drop = None if traced is None else reported_drop(case.resolved, traced)
    if drop is not None:
        yield f"the kernel dropped one more packet, sent afterwards: {reason_words(drop)}"


def _sockets(flow: Flow) -> Iterator[str]:
    """What the kernel's sockets reported of a flow."""
    for report in flow.reports:
        if report.error:
            yield f"the sender's socket: {report.error}"
        elif report.peer is not None:
            yield f"{report.backend} answered, and saw {endpoint(report.peer, report.peer_port)}"


def _tracked(case: Case, flow: Flow) -> Iterator[str]:
    """The conntrack entries of a flow on the nodes that translated it."""
    sent = (case.resolved.destination, case.resolved.port)
    for entry in flow.tracked:
        there = (entry.reply_source, entry.reply_source_port)
        back = endpoint(entry.reply_destination, entry.reply_destination_port)
        if there != sent or entry.reply_destination != case.resolved.sender.address_of_flow(flow.number):
            yield f"conntrack on {entry.node}: {endpoint(*there)} answers, to {back}"


def rule_table(view: ProbeView, width: int = WIDTH) -> list[str]:
    """The actions of the rules that counted, node by node in the order of the path."""
    if not view.rules:
        return []
    rows = [("on", "packets", "rule in", "what it did")]
    rows += [
        (rule.count.node, f"{rule.count.packets:,}", short(rule.count.chain), action)
        for rule, action in view.rules[:_MOST_ACTIONS]
    ]
    lines = table(rows, _INDENT, right=frozenset({1}), width=width)
    others = len(view.verdict.evidence.counts) - min(len(view.rules), _MOST_ACTIONS)
    return [*lines, f"{_INDENT}and {amount(others, 'more rule')}"] if others else lines


def brief(view: ProbeView) -> list[str]:
    """A pass in few lines: the path of the first packet, and each rule that changed or ended it."""
    flow = view.verdict.case.flows[0]
    seen = [*flow.departures[:1], *flow.arrivals[:1]]
    lines = [", then ".join(f"{each.netns_name} {' > '.join(_ends(each))}" for each in seen)] if len(seen) > 1 else []
    changing = [done for done in view.rules if not done.rule.target.startswith("KUBE-S")]
    lines += [f"{rule.count.node}: {short(rule.count.chain)} {action}" for rule, action in changing[:_MOST_BRIEFLY]]
    return [*lines, f"and {amount(len(changing) - _MOST_BRIEFLY, 'more rule')}"] if changing[_MOST_BRIEFLY:] else lines
