"""The path of a packet as a ladder: a column for each namespace, a rung for each hop, and the translations.

On a wide page rungs lie between columns. On a narrow page they are stacked, and each names its two ends in words. Both
layouts are one list in the order of the path, so that screen readers read it in order.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import amount, endpoint, times
from proxylab.plan.resolved import STACK
from proxylab.report.hop_table import missing, testimony
from proxylab.report.html.markup import Child, Markup, joined, tag
from proxylab.report.view import ProbeView
from proxylab.verdict.case import Case
from proxylab.verdict.counted_rules import CountedRule, ending, short
from proxylab.verdict.flows import Ends, Flow, Stop

MOST_COLUMNS: Final = 8
"""A ladder of more namespaces has no columns: the style sheet defines this many."""

_MOST_RUNGS: Final = 48
"""The number of rows that the style sheet defines."""


def ladder(view: ProbeView) -> Markup | None:
    """The drawing of the flow that shows what went wrong, or of the first; ``None`` if no tap saw it."""
    case, flow = view.verdict.case, view.flow
    seen = flow.stops
    if not seen:
        return None
    netns_names = list(dict.fromkeys(stop.netns_name for stop in seen))
    drawing = _Drawing(view, {netns_name: column for column, netns_name in enumerate(netns_names, 1)})
    wide = f"n{len(netns_names)}" if len(netns_names) <= MOST_COLUMNS else "flat"
    found = list(drawing.rungs(seen))
    rungs = [drawing.heads(), *_in_rows(found[:_MOST_RUNGS])]
    if len(found) > _MOST_RUNGS:
        rungs.append(tag("li", f"and {amount(len(found) - _MOST_RUNGS, 'more rung')}", class_="note"))
    rungs += [_missing(*row) for row in missing(case, flow)]
    return tag(
        "figure",
        tag("figcaption", _caption(case, flow)),
        tag("ol", rungs, class_=f"ladder {wide}"),
        [tag("p", clause, class_="said") for clause in testimony(case, flow, view.verdict.traced)],
        class_="way",
    )


def _caption(case: Case, flow: Flow) -> str:
    if len(case.flows) == 1:
        return "The packet, hop by hop"
    return f"Flow {flow.number:,} of {len(case.flows):,}, hop by hop"


class _Rung(Struct, frozen=True):
    """A hop from column ``begins`` to column ``ends``, or an event at one column."""

    begins: int
    ends: int
    kind: str
    content: Child

    def goes_on_from(self, before: "_Rung") -> bool:
        """Whether it fits into the row of the rung before: it continues that hop in the same direction."""
        steps = (before.ends - before.begins, self.ends - self.begins)
        return self.begins == before.ends and (min(steps) > 0 or max(steps) < 0)


def _in_rows(rungs: Sequence[_Rung]) -> Iterator[Markup]:
    row = 1
    for before, rung in zip((None, *rungs), rungs, strict=False):
        row += before is None or not rung.goes_on_from(before)
        here, there = sorted((rung.begins, rung.ends))
        netns_name = f"c{here}" if here == there else f"f{here} t{there}"
        yield tag("li", rung.content, class_=f"{rung.kind} {netns_name} r{row}")


class _Drawing:
    """What all rungs of a ladder share: the column of each namespace, and the rules that counted packets."""

    def __init__(self, view: ProbeView, columns: Mapping[str, int]) -> None:
        self._case = view.verdict.case
        self._plan = view.verdict.plan
        self._columns = columns
        self._rules = [done.rule for done in view.rules]

    def heads(self) -> Markup:
        """The names of the namespaces, above their columns."""
        heads = [
            tag(
                "div",
                tag("b", netns_name),
                tag("small", self._address(netns_name)),
                class_=f"netns {self._role(netns_name)} p{column}",
            )
            for netns_name, column in self._columns.items()
        ]
        return tag("li", heads, class_="heads", aria_hidden="true")

    def rungs(self, seen: Sequence[Stop]) -> Iterator[_Rung]:
        """Hops, translations and ends, in the order in which the taps saw them."""
        begun = seen[0].seen[0].at
        circles = 0
        for before, stop, after in zip((None, *seen), seen, (*seen[1:], None), strict=False):
            if before is None or not stop.follows:
                if stop.by:
                    yield self._entry(stop)
            elif stop.relayed or before.netns_name != stop.netns_name:
                yield from self._arrival(before, stop, begun)
            else:
                circles += 1
            if stop.came != stop.went:
                yield self._change(stop, stop.came, stop.went)
            if after is not None and after.follows and after.netns_name == stop.netns_name:
                continue
            if circles:
                words = f"it came back {times(circles)}, by {stop.by}"
                yield self._at(
                    stop.netns_name, "at again", (tag("span", f"{stop.netns_name}: ", class_="whence"), words)
                )
                circles = 0
            if after is None or not after.follows:
                yield from self._end(stop)

    def _arrival(self, before: Stop, stop: Stop, begun: int) -> Iterator[_Rung]:
        """How the packet came from the stop before: through a program of the same node, or from another namespace."""
        if stop.relayed:
            yield self._relay(before, stop)
            return
        if before.went != stop.came:
            yield self._change(stop, before.went, stop.came, before.netns_name)
        yield self._hop(before, stop, begun)

    def _hop(self, before: Stop, stop: Stop, begun: int) -> _Rung:
        """A packet from one namespace to another, with its addresses on arrival."""
        here, there = self._columns[before.netns_name], self._columns[stop.netns_name]
        ahead = here < there
        ends = [tag("i", before.out), tag("i", stop.by)]
        since = stop.seen[0].at - begun
        words = f"{before.netns_name} {before.out} to {stop.netns_name} {stop.by}".replace("  ", " ")
        content = (
            tag("span", words, class_="whence"),
            tag("span", _kind(stop), class_="kind"),
            _pair(stop.came, before.came if before.went == stop.came else before.went),
            tag("span", class_="line", aria_hidden="true"),
            tag("span", ends if ahead else ends[::-1], class_="devices", aria_hidden="true"),
            tag("span", _after(since), class_="after") if since > 0 else None,
        )
        return _Rung(here, there, f"hop {_colour(stop.packet)} {'ahead' if ahead else 'back'}", content)

    def _relay(self, before: Stop, stop: Stop) -> _Rung:
        """A program that ends one connection and goes on in another."""
        there = stop.packet is Packet.REQUEST
        words = "the proxy ends the connection and opens its own" if there else "the proxy passes the answer on"
        where = tag("span", f"{stop.netns_name}: ", class_="whence")
        return self._at(stop.netns_name, "at again", (where, words, " ", _pair(stop.came, before.went)))

    def _entry(self, stop: Stop) -> _Rung:
        """A packet whose earlier hops no tap saw."""
        content = (
            tag("span", f"{stop.netns_name} {stop.by}: ", class_="whence"),
            tag("span", _kind(stop), class_="kind"),
            _pair(stop.came, stop.came),
        )
        return self._at(stop.netns_name, f"at {_colour(stop.packet)}", content)

    def _at(self, netns_name: str, kind: str, content: Child) -> _Rung:
        column = self._columns[netns_name]
        return _Rung(column, column, kind, content)

    def _change(self, stop: Stop, old: Ends, new: Ends, since: str = "") -> _Rung:
        """A translation in a namespace, or, where no node was captured, somewhere after namespace ``since``."""
        request = stop.packet is Packet.REQUEST
        of_destination, of_source = ("DNAT", "SNAT") if request else ("SNAT undone", "DNAT undone")
        both = ((of_destination, old.destination, new.destination), (of_source, old.source, new.source))
        where = f"between {since} and {stop.netns_name}" if since else f"on {stop.netns_name}"
        lines = [
            tag(
                "span",
                tag("b", name, class_="translation"),
                tag("code", was),
                tag("span", " becomes ", class_="becomes"),
                tag("span", " ⇒ ", class_="into", aria_hidden="true"),
                tag("code", becomes, class_="new"),
                self._by(stop, becomes) if request and not since else None,
                class_="change",
            )
            for name, was, becomes in both
            if was != becomes
        ]
        ends = self._columns[since or stop.netns_name], self._columns[stop.netns_name]
        return _Rung(*ends, "at nat", (tag("span", f"{where}: ", class_="whence"), lines))

    def _by(self, stop: Stop, becomes: str) -> Markup | None:
        """The chain of the rule that translated, if only one can have."""
        found = [rule for rule in self._rules if rule.count.node == stop.netns_name and _makes(rule, becomes, stop)]
        chains = {short(rule.count.chain) for rule in found}
        return tag("span", f"by {chains.pop()}", class_="by") if len(chains) == 1 else None

    def _end(self, stop: Stop) -> Iterator[_Rung]:
        """Where a tap last saw a request, unless that is an endpoint."""
        if stop.packet is not Packet.REQUEST or not (stop.left or stop.netns_name in self._case.resolved.nodes):
            return
        if not stop.left and stop.seen[-1].device == STACK:
            return
        words = self._ended(stop) or (
            f"left by {stop.out}; no later tap saw it" if stop.left else "no tap saw it leave"
        )
        yield self._at(stop.netns_name, "at end", (tag("span", f"{stop.netns_name}: ", class_="whence"), words))

    def _ended(self, stop: Stop) -> str:
        """The rule that ended the packet: one of this node's, or of any node if nodes were not captured."""
        here = stop.netns_name in self._case.resolved.nodes
        counted = [rule for rule in self._case.rules if not here or rule.count.node == stop.netns_name]
        for target, verb in (("DROP", "dropped"), ("REJECT", "rejected")):
            if rules := ending(self._case.resolved, counted, target):
                where = "" if here else f"on {rules[0].count.node} "
                note = f": “{rules[0].comment}”" if rules[0].comment else ""
                return f"{verb} {where}by {short(rules[0].count.chain)}{note}"
        return ""

    def _role(self, netns_name: str) -> str:
        resolved = self._case.resolved
        if netns_name in resolved.nodes:
            return "node"
        return "pod" if any(netns_name == receiver.name for receiver in resolved.receivers) else "host"

    def _address(self, netns_name: str) -> str:
        resolved, plan = self._case.resolved, self._plan
        if netns_name == resolved.sender.name:
            return str(resolved.sender.address)
        for receiver in resolved.receivers:
            if receiver.name == netns_name:
                return str(receiver.address)
        if plan is None:
            return ""
        family = Family.of(resolved.sender.address)
        namespace = next((each for each in plan.namespaces if each.name == netns_name), None)
        own = [each.interface for each in namespace.addresses if each.device != "lo"] if namespace else []
        return next((str(each.ip) for each in own if Family.of(each) is family and not each.ip.is_link_local), "")


def _makes(rule: CountedRule, becomes: str, stop: Stop) -> bool:
    if becomes == stop.went.destination:
        return rule.target == "DNAT" and rule.translates_to is not None and endpoint(*rule.translates_to) == becomes
    return rule.target in ("MASQUERADE", "SNAT")


def _pair(now: Ends, before: Ends) -> Markup:
    """Source and destination, with a mark on an address that the namespace before changed."""
    source = tag("mark" if now.source != before.source else "code", now.source)
    destination = tag("mark" if now.destination != before.destination else "code", now.destination)
    return tag("span", source, tag("span", " → ", class_="arrow"), destination, class_="pair")


def _missing(word: str, packet: str, source: str, destination: str) -> Markup:
    ends = joined(tag("code", source or "?"), " → ", tag("code", destination or "?")) if source or destination else None
    return tag("li", f"{word}: {packet} ", ends, class_="note missing")


def _kind(stop: Stop) -> str:
    icmp = stop.seen[0].icmp
    return f"{stop.packet} {icmp[0]}/{icmp[1]}" if icmp else str(stop.packet)


def _colour(packet: Packet) -> str:
    match packet:
        case Packet.REQUEST:
            return "request"
        case Packet.REPLY:
            return "reply"
        case _:
            return "refusal"


def _after(nanoseconds: int) -> str:
    if nanoseconds < 1_000_000:
        return f"+{nanoseconds / 1000:.0f} µs"
    return f"+{nanoseconds / 1_000_000:.1f} ms"
