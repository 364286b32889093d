"""``View``: what reports show of one judged probe or step, each part worked out once.

Text, HTML page, JSON document, script and diagnosis render these parts, in the order of a reader's questions: what was
sent and expected, the reasons, the hops of one packet that shows them, the shares of flows, what the rules did, the
cause, and the command that shows it again.
"""

import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from proxylab.evidence.evidence import Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint
from proxylab.report.frames import ComparedFrame, compared
from proxylab.scenario.probes import AddressTarget, HostTarget, PodTarget, ServiceTarget, Target
from proxylab.scenario.words import PodWay
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import why, why_step, with_holder
from proxylab.verdict.counted_rules import CountedRule, rule_action
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict

_INFORMATIVE_TARGETS = frozenset({"DNAT", "REDIRECT", "SNAT", "MASQUERADE", "DROP", "REJECT"})

_PASSING = frozenset({"ACCEPT", "RETURN"})

# The order in which a packet meets kube-proxy's chains: from the frontend to the endpoint, and out.
_STAGES = ("KUBE-PROXY-FIREWALL", "KUBE-SERVICES", "KUBE-EXTERNAL", "KUBE-NODEPORTS", "KUBE-FW-", "KUBE-EXT-",
           "KUBE-XLB-", "KUBE-SVL-", "KUBE-SVC-", "KUBE-SEP-", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT",
           "KUBE-SOURCE-RANGES", "KUBE-IPVS-FILTER", "-t ", "-u ", "--sctp-service ",
           "KUBE-FORWARD", "POSTROUTING")  # fmt: skip


class RerunCommand(NamedTuple):
    """The command that runs a probe or step alone, quoted for a shell: the run, and the option that names it."""

    run: str
    option: str

    def __str__(self) -> str:
        return f"{self.run} {self.option}".rstrip()


class Reason(NamedTuple):
    """A clause for a verdict: why it is not a pass, or what proves that it is."""

    expectation: str
    clause: str


class Share(NamedTuple):
    """The flows that one backend got, their share of all, and the expected share."""

    backend: str
    flows: int
    share: float
    expected: float

    @property
    def distance(self) -> float:
        """How far it is from the expected share."""
        return abs(self.share - self.expected)


class RuleEffect(NamedTuple):
    """A rule that counted packets, and what it did to them."""

    rule: CountedRule
    action: str


class _View(Struct, frozen=True, dict=True):
    verdict: ProbeVerdict | StepVerdict

    @property
    def judgement(self) -> Judgement:
        return self.verdict.overall

    @cached_property
    def deciding(self) -> Sequence[Verdict]:
        """The verdicts that decide: the worst."""
        return self.verdict.deciding

    @cached_property
    def reasons(self) -> Sequence[Reason]:
        """Only those of the deciding verdicts, since the others often follow from them; of a pass the proofs."""
        passes = self.judgement is Judgement.PASS
        return [
            Reason(each.expectation, with_holder(self.verdict, each, clause))
            for each in self.deciding
            for clause in (each.witnesses if passes else each.reasons)
        ]

    @cached_property
    def summary(self) -> str:
        """What the lab observed, in one line: ``delivered; reply from 10.96.0.10:80; …``."""
        return "; ".join(
            each.observed if each.expectation == "outcome" else f"{each.expectation} {each.observed}"
            for each in self.verdict.verdicts
            if each.observed
        )

    @cached_property
    def command(self) -> RerunCommand:
        """A Python test runs its own probes, so it needs no option."""
        verdict = self.verdict
        if verdict.rerun_command:
            return RerunCommand(verdict.rerun_command, "")
        options = "".join(f" {shlex.quote(option)}" for option in verdict.options)
        written = verdict.written
        return RerunCommand(
            f"proxylab run {shlex.quote(written.position.file)}{options}", f"--probe {_quoted(written.name)}"
        )


class ProbeView(_View, frozen=True, dict=True):
    """What reports show of a probe."""

    verdict: ProbeVerdict

    @cached_property
    def sent(self) -> str:
        """What the probe sent: sender, target, the address dialled, and the number of flows."""
        resolved, probe = self.verdict.resolved, self.verdict.probe
        sent = f"{amount(resolved.flows, 'flow')} of {resolved.protocol} by {resolved.manner}"
        if resolved.sender.frame_mac:
            sent += f", in frames to {probe.send.frame_to}"
        if probe.send.ttl is not None:
            sent += f", with a time to live of {probe.send.ttl}"
        if probe.send.dscp is not None:
            sent += f", with DSCP {probe.send.dscp}"
        more = f" and {len(resolved.sender.others):,} more" if resolved.sender.others else ""
        way = f"{resolved.sender.name} ({resolved.sender.address}{more}) to {_target(probe.target)}"
        question = resolved.question
        if question is not None and has_no_address(resolved, self.verdict.evidence.lookups):
            return f"{way}, asking {resolved.destination} for {question.names[0]}: nothing dialled"
        return f"{way}, dialling {endpoint(resolved.destination, resolved.port)}: {sent}"

    @property
    def example(self) -> int | None:
        """The flow that shows what went wrong; ``None`` where all do, or none in particular."""
        return self.deciding[0].example

    @property
    def flow(self) -> Flow:
        """That flow, or the first."""
        return self.verdict.case.flows[self.example or 0]

    @property
    def hops(self) -> tuple[Observation, ...]:
        """That flow's packet, hop by hop."""
        return self.flow.hops

    @cached_property
    def frame(self) -> ComparedFrame | None:
        """That flow's packet beside the expected one; ``None`` of a pass, and where no packet differs."""
        return None if self.judgement is Judgement.PASS else compared(self.verdict.case, self.flow)

    @cached_property
    def expected_shares(self) -> Mapping[str, float]:
        return self.verdict.case.expected_shares

    @cached_property
    def shares(self) -> Sequence[Share]:
        """A share for each backend that is expected to get flows, and then for each other one that got some."""
        found, expected = self.verdict.case.arrivals_by_pod, self.expected_shares
        total = found.total()
        return [
            Share(name, found[name], found[name] / total, expected.get(name, 0.0))
            for name in dict.fromkeys([*expected, *found])
            if total
        ]

    @cached_property
    def rules(self) -> Sequence[RuleEffect]:
        """The rules that matter, in the order of the path."""
        case = self.verdict.case
        return [RuleEffect(rule, action_of(rule, case)) for rule in informative_rules(case, self.verdict.traced)]

    @cached_property
    def cause(self) -> str:
        """The sentence behind ``why:``; empty for a pass."""
        return why(self.verdict)


class StepView(_View, frozen=True, dict=True):
    """What reports show of a step."""

    verdict: StepVerdict

    @cached_property
    def cause(self) -> str:
        """The sentence behind ``why:``; empty for a pass."""
        return why_step(self.verdict)


def view_of(verdict: ProbeVerdict | StepVerdict) -> ProbeView | StepView:
    return StepView(verdict) if isinstance(verdict, StepVerdict) else ProbeView(verdict)


def informative_rules(case: Case, traced: Evidence | None) -> list[CountedRule]:
    """The rules that changed or ended packets of the probe, or name what it dials, in the order of the path.

    ``traced`` is one more packet, traced through the rules, which shows the order of the nodes.
    """
    return sorted((rule for rule in case.rules if _tells(rule, case)), key=lambda rule: _order(rule, case, traced))


def action_of(rule: CountedRule, case: Case) -> str:
    """What a rule did, as ``rule_action`` words it; marking a packet for masquerading is not masquerading it."""
    did = rule_action(rule, case.resolved)
    if rule.marks_for_masquerading and not any(each.changes_source for each in case.rules):
        return did.replace("masquerades", "marks it for masquerading", 1)
    return did


def _tells(rule: CountedRule, case: Case) -> bool:
    if rule.count.member and not rule.comment and rule.target in _PASSING:
        return False  # of mode ipvs, which lets all packets of its sets pass in several places
    return rule.target in _INFORMATIVE_TARGETS or rule.marks_for_masquerading or rule.matches(case.resolved)


def _order(rule: CountedRule, case: Case, traced: Evidence | None) -> tuple[int, int]:
    """By node in the order of the traced packet, else of the resolved probe; on a node by the stage of the chain."""
    passed = [step.netns_name for step in traced.steps if step.packet is Packet.REQUEST] if traced else []
    nodes = list(dict.fromkeys([*passed, *case.resolved.nodes, rule.count.node]))
    stage = next((at for at, prefix in enumerate(_STAGES) if prefix in rule.count.chain), -1)
    return nodes.index(rule.count.node), stage


_EXPANDED = frozenset('"$`\\!')
"""What a shell reads in double quotes."""


def _target(target: Target) -> str:
    match target:
        case ServiceTarget():
            node = f" at {target.node}" if target.node else ""
            return f"Service {target.namespace}/{target.service} by its {target.via}{node}"
        case PodTarget(via=PodWay.HOST_PORT):
            return f"pod {target.pod} by its host port"
        case PodTarget():
            return f"pod {target.pod}"
        case HostTarget():
            return f"host {target.host}"
        case AddressTarget():
            return f"{target.address}{target.path and f' at {target.path}'}"


def _quoted(name: str) -> str:
    """The name in single quotes, or in double ones if it has an apostrophe, as in "a node's port"."""
    if "'" not in name:
        return f"'{name}'"
    return f'"{name}"' if _EXPANDED.isdisjoint(name) else shlex.quote(name)
