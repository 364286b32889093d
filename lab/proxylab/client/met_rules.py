"""Which rules of a lab's proxies the packets of its probes met: by the counts of each probe's evidence.

Where a mode's rules have counters, the evidence has what they counted; else what the kernel traced of each flow's first
packet. Of an element of a set or map neither says anything: it was met if a rule that counted looks it up, and a packet
of the probe on that node has its key. Nothing is counted of streams and of the lab's own packets, such as sentinels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from proxylab.addresses import Family, IPAddress
from proxylab.client.open_lab import OpenLab
from proxylab.engines.engine_names import mode_of
from proxylab.engines.loaded_rules import LoadedRule
from proxylab.engines.modes import MODES
from proxylab.evidence.evidence import Packet
from proxylab.rules.rule import Action, Match, Rule
from proxylab.rules.texts import read_rule
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict
from proxylab.verdict.rule_coverage import KindName, RuleCoverage, RuleKind


class _Headers(NamedTuple):
    """What a packet of a probe had on a node, as elements write it."""

    protocol: str
    source: str
    source_port: str
    destination: str
    destination_port: str


_OF_EXPRESSION: Final[Mapping[str, str]] = {
    "meta l4proto": "protocol",
    **{f"{ip} saddr": "source" for ip in ("ip", "ip6")},
    **{f"{ip} daddr": "destination" for ip in ("ip", "ip6")},
    "th sport": "source_port",
    "th dport": "destination_port",
}
"""The field of a packet by nft's expression for it. Of any other one, all elements may be meant."""


class _Counted(NamedTuple):
    """A rule that counted, or one that could."""

    family: Family
    table: str
    chain: str
    text: str


class _SetOrMap(NamedTuple):
    """A named set or map."""

    family: Family
    table: str
    name: str


class _Loaded(NamedTuple):
    """What a proxy in a mode has loaded."""

    mode: str
    family: Family
    rule: LoadedRule


class MetRules:
    """What the proxies of one case have had in the kernel, and what of it the packets of its probes met."""

    def __init__(self) -> None:
        self._loaded: dict[_Loaded, None] = {}
        self._counted: set[_Counted] = set()
        self._looked_up: dict[_SetOrMap, set[tuple[str, ...]]] = {}
        self._uncounted: dict[str, None] = {}
        self._read: tuple[OpenLab, int] | None = None

    def note(self, lab: OpenLab, verdict: ProbeVerdict | StepVerdict) -> None:
        """Add what a probe met, and what the nodes have, once after each step. Raises what the lab raises."""
        if isinstance(verdict, ProbeVerdict):
            self.add_probe(verdict)
        if lab.is_open and (lab, lab.made) != self._read:
            self._read = lab, lab.made
            modes = lab.scenario.modes_after(mode_of(lab.engine.name), lab.made)
            self.add_rules(lab.rules(), modes, lab.scenario.network.families)

    def add_rules(self, dumps: Mapping[str, str], modes: Mapping[str, str], families: Sequence[Family]) -> None:
        """Add what the nodes of a cluster of these families have now, by their names, each in the mode of its proxy."""
        for node, dump in dumps.items():
            mode = modes[node]
            for family, text in MODES[mode].by_family(dump, families).items():
                self._loaded |= dict.fromkeys(_Loaded(mode, family, each) for each in MODES[mode].loaded(text))

    def add_probe(self, verdict: ProbeVerdict) -> None:
        """Add what the packets of a probe met. One that was left out met nothing."""
        if verdict.overall is Judgement.SKIP:
            return
        evidence, family = verdict.evidence, Family.of(verdict.resolved.destination)
        if set(verdict.resolved.nodes).difference(evidence.metered_nodes):
            self._uncounted[verdict.written.name] = None
        headers: dict[str, set[_Headers]] = {}
        for count in evidence.counts:
            if not count.packets:
                continue
            self._counted.add(_Counted(family, count.table, count.chain, count.text))
            rule = read_rule(count.text)
            for expression, name in () if rule is None else _lookups(rule):
                if count.node not in headers:
                    headers[count.node] = set(_headers_on(count.node, verdict))
                fields = [_OF_EXPRESSION.get(each) for each in expression.split(" . ")]
                keys = self._looked_up.setdefault(_SetOrMap(family, count.table, name), set())
                for each in headers[count.node]:
                    keys.add(tuple(getattr(each, field) if field else "" for field in fields))

    def coverage(self) -> RuleCoverage:
        """What was met so far, by kind."""
        of_kind: dict[KindName, dict[_Counted, bool]] = {}
        for mode, family, each in self._loaded:
            rules = of_kind.setdefault(KindName(mode, each.where, each.kind), {})
            rules[_Counted(family, each.table, each.chain, each.text)] = self._is_met(family, each)
        return RuleCoverage(
            tuple(
                RuleKind(
                    *key,
                    len(rules),
                    sum(rules.values()),
                    tuple(
                        each.text if each.text.startswith("-") else f"{each.chain}: {each.text}"
                        for each, met in rules.items()
                        if not met
                    ),
                )
                for key, rules in sorted(of_kind.items())
            ),
            tuple(self._uncounted),
        )

    def _is_met(self, family: Family, each: LoadedRule) -> bool:
        if not each.key:
            return _Counted(family, each.table, each.chain, each.text) in self._counted
        known = self._looked_up.get(_SetOrMap(family, each.table, each.chain), ())
        return any(
            len(key) == len(each.key) and all(had in ("", part) for had, part in zip(key, each.key, strict=True))
            for key in known
        )


def _lookups(rule: Rule) -> Iterator[tuple[str, str]]:
    """The named sets and maps that a rule looks up, each behind the expression that it looks for."""
    for part in rule.parts:
        if isinstance(part, Match) and part.value.startswith("@"):
            yield part.name, part.value[1:]
        elif isinstance(part, Action) and part.name == "vmap" and part.words[-1].startswith("@"):
            yield part.words[0], part.words[-1][1:]


def _headers_on(node: str, verdict: ProbeVerdict) -> Iterator[_Headers]:
    """What the probe's requests had on a node: as they were sent, as devices saw them, and behind their translation."""
    resolved, evidence = verdict.resolved, verdict.evidence
    protocol = resolved.protocol.lower()
    sender: IPAddress = resolved.sender.address
    yield _Headers(protocol, str(sender), "", str(resolved.destination), str(resolved.port))
    for seen in evidence.observations:
        if seen.netns_name == node and seen.packet is Packet.REQUEST:
            ends = seen.source, seen.source_port, seen.destination, seen.destination_port
            yield _Headers(protocol, *map(str, ends))
    for flow in evidence.tracked or ():
        if flow.node == node:
            yield _Headers(protocol, str(sender), "", str(flow.reply_source), str(flow.reply_source_port))
