"""The words of a verdict: what was expected, what was seen, where it changed, why, and how to see it again.

Owns: the order and the layout of an explanation, as plain lines of at most 80 columns.
Must not: colour anything, or say what the evidence does not show. Long rules and commands keep their words whole.

The order is that of a reader who has to mend something: where in the file; what was sent; expected against observed;
what that rests on; the way of one packet that shows it; how flows were shared out; the rules that counted; the cause
in one sentence; the command.
"""

import shlex
from collections.abc import Iterator, Sequence

from lab.scenario.model import AddressTarget, HostTarget, PodTarget, ServiceTarget, Target
from lab.verdict.arrivals import hits
from lab.verdict.case import Case, open_case
from lab.verdict.causes import cause
from lab.verdict.columns import WIDTH, table, width_of, wrapped
from lab.verdict.evidence import Direction, Observation, Packet
from lab.verdict.flows import Flow, hops
from lab.verdict.model import Judgement, ProbeVerdict, Verdict
from lab.verdict.rules import Rule, read_all
from lab.verdict.words import amount, endpoint

__all__ = ["command", "explain", "summary"]

_MOST_HOPS = 12
_MOST_PODS = 12
_MOST_RULES = 8
_INDENT = "  "

_ABOUT_SHARES = frozenset({"backends", "spread"})
_TELLING_TARGETS = frozenset({"DNAT", "SNAT", "MASQUERADE", "DROP", "REJECT"})


def explain(verdict: ProbeVerdict) -> tuple[str, ...]:
    """The explanation of a probe that is not a pass; of a pass, what it rests on.

    Returns:
        Lines without line ends and without colour. The first begins with ``file:line:column``.
    """
    case = open_case(verdict.probe, verdict.errand, verdict.evidence)
    main = _main(verdict)
    lines = [*_head(verdict, main, case), "", *_verdicts(verdict), *_reasons(verdict)]
    for section in (_way(case, main), _shares(case, verdict), _counters(case), _cause(case, verdict)):
        if section:
            lines += ["", *section]
    if verdict.overall is not Judgement.PASS:
        lines += ["", *_reproduce(verdict)]
        if verdict.bundle:
            lines.append(f"{_INDENT}evidence:  {verdict.bundle}")
    return tuple(lines)


def summary(verdict: ProbeVerdict) -> str:
    """What was seen of a probe, in one line of no particular width: ``delivered; reply from 10.96.0.10:80; …``."""
    return "; ".join(
        each.observed if each.expectation == "outcome" else f"{each.expectation} {each.observed}"
        for each in verdict.verdicts
        if each.observed
    )


def command(verdict: ProbeVerdict) -> tuple[str, str]:
    """The command that runs this probe alone, quoted for a shell: the run, and the option that names the probe."""
    probe = verdict.probe
    told = "".join(f" {shlex.quote(option)}" for option in verdict.options)
    return f"proxylab run {shlex.quote(probe.position.file)}{told}", f"--probe {_quoted(probe.name)}"


def _reproduce(verdict: ProbeVerdict) -> list[str]:
    """The command in one line, or in two that a shell reads as one."""
    run, option = command(verdict)
    line = f"{_INDENT}reproduce: {run} {option}"
    return [line] if len(line) <= WIDTH else [f"{_INDENT}reproduce: {run} \\", f"{_INDENT * 3}{option}"]


def _quoted(name: str) -> str:
    return shlex.quote(name) if "'" in name else f"'{name}'"


def _main(verdict: ProbeVerdict) -> Verdict:
    """The verdict that decides the probe: the first of the worst."""
    return next(each for each in verdict.verdicts if each.judgement is verdict.overall)


def _head(verdict: ProbeVerdict, main: Verdict, case: Case) -> Iterator[str]:
    yield from wrapped(f"{main.position}: {verdict.overall.upper()}: {verdict.probe.name}", rest=_INDENT)
    errand = case.errand
    sent = f"{amount(errand.flows, 'flow')} of {errand.protocol} by {errand.manner}"
    way = f"{errand.sender.name} ({errand.sender.address}) to {_target(verdict.probe.target)}"
    yield from wrapped(f"{way}, dialling {endpoint(errand.destination, errand.port)}: {sent}", _INDENT)


def _target(target: Target) -> str:
    match target:
        case ServiceTarget():
            node = f" at {target.node}" if target.node else ""
            return f"Service {target.namespace}/{target.service} by its {target.via}{node}"
        case PodTarget():
            return f"pod {target.pod}"
        case HostTarget():
            return f"host {target.host}"
        case AddressTarget():
            return str(target.address)


def _verdicts(verdict: ProbeVerdict) -> list[str]:
    rows = [("", "", "expected", "observed")]
    rows += [(each.judgement.value, each.expectation, each.expected, each.observed) for each in verdict.verdicts]
    return table(rows, _INDENT)


def _reasons(verdict: ProbeVerdict) -> Iterator[str]:
    """What the verdicts rest on: only those that decide the probe, since the others often follow from them."""
    deciding = [each for each in verdict.verdicts if each.judgement is verdict.overall]
    clauses = [
        (f"{_INDENT}{each.expectation}: ", clause)
        for each in deciding
        for clause in (each.witnesses if verdict.overall is Judgement.PASS else each.reasons)
    ]
    if clauses:
        yield ""
    for expectation, clause in clauses:
        yield from wrapped(clause, expectation)


def _way(case: Case, main: Verdict) -> list[str]:
    """One packet, hop by hop, with a star where an address is not what it was at the hop before.

    Among many flows only one that shows what went wrong is worth the lines.
    """
    if len(case.flows) > 1 and main.example is None:
        return []
    flow = case.flows[main.example or 0]
    seen = hops(flow)
    if not seen:
        return []
    rows: list[tuple[str, ...]] = [("hop", "packet", "from", "to")]
    before: dict[Packet, tuple[str, str]] = {}
    for each in seen[:_MOST_HOPS]:
        source, destination = _ends(each)
        earlier = before.get(each.packet, (source, destination))
        before[each.packet] = (source, destination)
        starred = [end + ("*" if end != old else "") for end, old in zip((source, destination), earlier, strict=True)]
        rows.append((f"{each.place} {each.device} {each.direction}", _packet(each), *starred))
    if width_of(rows) > WIDTH - 2 * len(_INDENT):
        rows = [(hop, packet, f"{ends[0]} > {ends[1]}") for hop, packet, *ends in rows]
    lines = [_INDENT + _which(case, flow)]
    lines += table(rows, _INDENT * 2)
    if len(seen) > _MOST_HOPS:
        lines.append(f"{_INDENT * 2}and {amount(len(seen) - _MOST_HOPS, 'more packet')}")
    if seen[-1].direction is Direction.OUT and seen[-1].packet is Packet.REQUEST:
        lines.append(f"{_INDENT * 2}nothing more was seen of it")
    return [*lines, *_sockets(flow), *_tracked(case, flow)]


def _which(case: Case, flow: Flow) -> str:
    changed = "* changed since the hop before"
    if len(case.flows) == 1:
        return f"the packet, hop by hop ({changed}):"
    return f"flow {flow.number:,}, hop by hop ({changed}):"


def _ends(seen: Observation) -> tuple[str, str]:
    return endpoint(seen.source, seen.source_port), endpoint(seen.destination, seen.destination_port)


def _packet(seen: Observation) -> str:
    return f"{seen.packet} {seen.icmp[0]}/{seen.icmp[1]}" if seen.icmp else str(seen.packet)


def _sockets(flow: Flow) -> Iterator[str]:
    """What the kernel's sockets said of a flow, beside what the taps saw."""
    for report in flow.reports:
        if report.error:
            yield f"{_INDENT * 2}the sender's socket: {report.error}"
        elif report.peer is not None:
            yield f"{_INDENT * 2}{report.backend} answered, and saw {endpoint(report.peer, report.peer_port)}"


def _tracked(case: Case, flow: Flow) -> Iterator[str]:
    """What the nodes' connection tracking held of a flow that one of them translated, or that all of them forgot."""
    sent = (case.errand.destination, case.errand.port)
    for entry in flow.tracked:
        there = (entry.reply_source, entry.reply_source_port)
        back = endpoint(entry.reply_destination, entry.reply_destination_port)
        if there != sent or entry.reply_destination != case.errand.sender.address:
            yield f"{_INDENT * 2}conntrack on {entry.node}: {endpoint(*there)} answers, to {back}"


def _shares(case: Case, verdict: ProbeVerdict) -> list[str]:
    """How flows were shared out, where that is what failed: furthest from its due first, the rest only counted."""
    decisive = {each.expectation for each in verdict.verdicts if each.judgement is verdict.overall}
    if len(case.flows) == 1 or verdict.overall is Judgement.PASS or decisive.isdisjoint(_ABOUT_SHARES):
        return []
    found = hits(case)
    names = list(dict.fromkeys([*(case.probe.expect.backends or ()), *found]))
    total = found.total()
    if not total:
        return []
    rows = [("backend", "flows", "share", "due")]
    shown = names
    if len(names) > _MOST_PODS:
        shown = sorted(names, key=lambda name: -abs(found[name] - total / len(names)))[:_MOST_PODS]
    expected = case.probe.expect.backends or names
    due = f"{1 / len(expected):.1%}"
    rows += [
        (name, f"{found[name]:,}", f"{found[name] / total:.1%}", due if name in expected else "0.0%") for name in shown
    ]
    lines = table(rows, _INDENT, right=frozenset({1, 2, 3}))
    if len(names) > len(shown):
        lines.append(f"{_INDENT}and {len(names) - len(shown):,} more, closer to their due")
    return lines


def _counters(case: Case) -> list[str]:
    """The rules that counted and bear on the probe: what was dialled, what translates, drops or masquerades."""
    rules = read_all(case.evidence.counts)
    telling = [rule for rule in rules if _tells(rule, case)]
    if not telling:
        return []
    rows = [("counted on", "packets", "rule")]
    rows += [(rule.count.node, f"{rule.count.packets:,}", rule.count.text) for rule in telling[:_MOST_RULES]]
    lines = table(rows, _INDENT, right=frozenset({1}))
    others = len(case.evidence.counts) - min(len(telling), _MOST_RULES)
    if others:
        lines.append(f"{_INDENT}and {amount(others, 'more rule')}")
    return lines


def _tells(rule: Rule, case: Case) -> bool:
    return rule.target in _TELLING_TARGETS or rule.target.endswith("MARK-MASQ") or rule.speaks_of(case.errand)


def _cause(case: Case, verdict: ProbeVerdict) -> list[str]:
    sentences: Sequence[str] = [
        sentence for each in verdict.verdicts if (sentence := cause(case, each, verdict.plan, verdict.traced))
    ]
    return wrapped(sentences[0], f"{_INDENT}why: ") if sentences else []
