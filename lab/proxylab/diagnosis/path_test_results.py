"""The last three stations in what packets showed: who was reached, as whom, and whether endpoints reach themselves.

Owns: ``judge_translation``, ``judge_masquerade`` and ``judge_hairpin``.
Must not: send; and it judges no packet by itself: what became of one is the verdict's word (``proxylab.verdict``).
"""

from collections.abc import Iterator, Mapping, Sequence

from proxylab.diagnosis.model import Finding, Station, breaks, holds, nothing, unclear
from proxylab.diagnosis.ruling import Rules
from proxylab.diagnosis.subject import Subject
from proxylab.diagnosis.path_tests import Kind, Walk
from proxylab.frozen import dataclass
from proxylab.addresses import IPAddress
from proxylab.scenario.model import Front, Outcome
from proxylab.verdict.case import Case, open_case
from proxylab.verdict.causes import cause
from proxylab.verdict.explain import why
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict
from proxylab.verdict.rules import translations
from proxylab.evidence.words import amount, listed

__all__ = ["Walked", "judge_hairpin", "judge_masquerade", "judge_translation"]

_TRANSLATION = ("outcome", "backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """A walk, and the verdict on what it showed."""

    walk: Walk
    verdict: ProbeVerdict

    @property
    def case(self) -> Case:
        """The flows, sorted."""
        return open_case(self.verdict.probe, self.verdict.errand, self.verdict.evidence)

    def unresolved(self, *expectations: str) -> Verdict | None:
        """The verdict on one of these that is no pass, a failure before what is in doubt."""
        found = [each for each in self.verdict.verdicts if each.expectation in expectations]
        failed = (each for each in found if each.judgement is Judgement.FAIL)
        return next(failed, next((each for each in found if each.judgement is not Judgement.PASS), None))

    def because(self, verdict: Verdict) -> str:
        """Why it is no pass, as a sentence."""
        sentence = why(self.case, self.verdict) or f"{'; '.join(verdict.reasons)}."
        return sentence if verdict.judgement is Judgement.FAIL else f"{'; '.join(verdict.reasons)}."


def judge_translation(subject: Subject, walked: Sequence[Walked]) -> Finding:
    """Whoever dials a front reaches an endpoint that is due, and none besides."""
    if not walked:
        return nothing(Station.DNAT, "nobody in this lab may dial a front of it")
    doubtful: Finding | None = None
    for each in walked:
        verdict = each.unresolved(*_TRANSLATION)
        if verdict is None:
            if elsewhere := _translated_elsewhere(each):
                told = f"{elsewhere} translated it, and not {each.walk.node}"
                sentence = f"{each.walk}: no rule of {each.walk.node} translated it; it went on, and {elsewhere} did."
                return breaks(Station.DNAT, (f"{each.walk}: {told}",), sentence, *_looks(subject, each.walk))
            continue
        told = f"{each.walk}: {verdict.observed}"
        sentence = f"{each.walk}: {each.because(verdict)}"
        if verdict.judgement is Judgement.FAIL:
            return breaks(Station.DNAT, (told,), sentence, *_looks(subject, each.walk))
        doubtful = doubtful or unclear(Station.DNAT, (told,), sentence, *_looks(subject, each.walk))
    if doubtful is not None:
        return doubtful
    flows = sum(len(each.case.flows) for each in walked)
    hit = {
        (flow.arrivals[0].destination, flow.arrivals[0].destination_port)
        for each in walked
        for flow in each.case.arrived
    }
    due = dict.fromkeys(backend for each in walked for backend in each.walk.due)
    reached = f"{sum(backend in hit for backend in due):,} of {amount(len(due), 'endpoint')} reached"
    fronts = len({each.walk.front for each in walked})
    return holds(Station.DNAT, f"{amount(flows, 'flow')} to {amount(fronts, 'front')} were translated: {reached}")


def _translated_elsewhere(walked: Walked) -> str:
    """The node that led a walk to an endpoint, if it was another than the one that is due to."""
    translating = [rule for rule in translations(walked.case.evidence.counts) if rule.translates_to in walked.walk.due]
    return next((rule.count.node for rule in translating if rule.count.node != walked.walk.node), "")


def judge_masquerade(
    subject: Subject, rules: Rules, walked: Sequence[Walked], addresses: Mapping[str, tuple[IPAddress, ...]]
) -> Finding:
    """Endpoints see whom they must, and what they answer comes back.

    Args:
        subject: the Service.
        rules: of every node.
        walked: the walks that came through.
        addresses: those of every node, pod and host.
    """
    for each in walked:
        finding = _mistaken(subject, rules, each, addresses) or _unanswered(subject, each)
        if finding is not None:
            return finding
    seen = list(_sources(walked))
    lacking = [f"{node}" for (node, _), programmed in rules.items() if not programmed.masquerades]
    if lacking:
        cause = f"{lacking[0]} has no rule that masquerades what the rules of Services have marked."
        look = f"rules {lacking[0]} | grep -i masq"
        return breaks(Station.MASQUERADE, (f"{lacking[0]} masquerades nothing",), cause, look)
    return holds(Station.MASQUERADE, *(seen or ("nothing dialled here needs it",)))


def _mistaken(
    subject: Subject, rules: Rules, walked: Walked, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> Finding | None:
    """A source that endpoints must not see, or one that they must and do not."""
    walk, case = walked.walk, walked.case
    flow = next((flow for flow in case.arrived if _is_wrong(subject, walk, flow, addresses)), None)
    if flow is None:
        return None
    saw = f"{flow.arrivals[0].place} saw {flow.arrivals[0].source}"
    must = f"an address of {walk.node}" if walk.hidden else f"{walk.walker.name}'s own"
    sentence = _why_source(rules, walked, flow)
    told = f"{walk}: {saw}, and must see {must}"
    return breaks(
        Station.MASQUERADE, (told,), f"{told}; {sentence}", *_looks(subject, walk), f"rules {walk.node} | grep -i masq"
    )


def _is_wrong(subject: Subject, walk: Walk, flow: Flow, addresses: Mapping[str, tuple[IPAddress, ...]]) -> bool:
    arrival = flow.arrivals[0]
    if walk.hidden is None:
        return False
    if not walk.hidden:
        return arrival.source not in walk.walker.addresses
    # What a node hands to a program of its own never leaves, so nothing masquerades it.
    if subject.pod_at(arrival.destination) is None and arrival.destination in addresses.get(walk.node, ()):
        return False
    return arrival.source not in addresses.get(walk.node, ())


def _why_source(rules: Rules, walked: Walked, flow: Flow) -> str:
    walk = walked.walk
    programmed = rules[walk.node, walk.front.family]
    if walk.hidden and not programmed.masquerades:
        return f"{walk.node} has no rule that masquerades what was marked."
    verdict = Verdict(
        expectation="source",
        judgement=Judgement.FAIL,
        expected="",
        observed=str(flow.arrivals[0].source),
        position=walked.verdict.probe.position,
        example=flow.number,
    )
    sentence = cause(walked.case, verdict, walked.verdict.plan, walked.verdict.traced)
    return sentence or ("nothing masqueraded it." if walk.hidden else "something masqueraded it.")


def _unanswered(subject: Subject, walked: Walked) -> Finding | None:
    """What was answered and did not come back as it must."""
    verdict = walked.unresolved("reply")
    if verdict is None:
        return None
    told = f"{walked.walk}: {verdict.observed or 'no reply'}"
    sentence = f"{walked.walk}: {walked.because(verdict)}"
    make = breaks if verdict.judgement is Judgement.FAIL else unclear
    return make(Station.MASQUERADE, (told,), sentence, *_looks(subject, walked.walk))


def _sources(walked: Sequence[Walked]) -> Iterator[str]:
    """As whom clients were seen."""
    hidden = dict.fromkeys(each.walk.walker.name for each in walked if each.walk.hidden)
    kept = dict.fromkeys(each.walk.walker.name for each in walked if each.walk.hidden is False)
    if hidden:
        yield f"endpoints see the node in the place of {listed(list(hidden))}"
    if kept:
        yield f"{listed(list(kept))} {'keeps its address' if len(kept) == 1 else 'keep their addresses'}"
    if walked:
        yield "all answers came back"


def judge_hairpin(subject: Subject, walked: Sequence[Walked]) -> Finding:
    """An endpoint that dials its Service and is chosen itself is reached, and answers."""
    if not walked:
        return nothing(Station.HAIRPIN, "no endpoint is a pod that can dial its own Service")
    reached: dict[str, None] = {}
    for each in walked:
        walk, case = each.walk, each.case
        own = [flow for flow in case.arrived if flow.arrivals[0].destination in walk.walker.addresses]
        kept = next((flow for flow in own if flow.arrivals[0].source in walk.walker.addresses), None)
        verdict = each.unresolved("outcome", "reply")
        look = (f"trace {walk.walker.name} {_target(subject, walk)}", f"rules {walk.node} | grep -i masq")
        if kept is not None:
            told = f"{walk.walker.name} got its own packet from its own address"
            sentence = (
                f"{told} ({kept.arrivals[0].source}), so its answer never passes {walk.node}: nothing masqueraded it."
            )
            return breaks(Station.HAIRPIN, (told,), sentence, *look)
        if verdict is not None:
            told = f"{walk.walker.name} to itself: {verdict.observed or Outcome.DROPPED}"
            sentence = f"{walk.walker.name} does not reach itself through the Service: {each.because(verdict)}"
            make = breaks if verdict.judgement is Judgement.FAIL else unclear
            return make(Station.HAIRPIN, (told,), sentence, *look)
        if own:
            reached[walk.walker.name] = None
    if not reached:
        return nothing(Station.HAIRPIN, "session affinity led no endpoint to itself")
    return holds(Station.HAIRPIN, f"{listed(list(reached))} reached through the Service by {_themselves(reached)}")


def _themselves(names: dict[str, None]) -> str:
    return "itself, by an address of its node" if len(names) == 1 else "themselves, by an address of their node"


def _looks(subject: Subject, walk: Walk) -> Iterator[str]:
    """The commands that show a walk."""
    via = "" if walk.front.via is Front.CLUSTER_IP else f" --via {walk.front.via}"
    named = walk.at is not None or walk.walker.kind is Kind.HOST
    node = f" --node {walk.node}" if named else ""
    yield f"trace {walk.walker.name} {_target(subject, walk)}{via}{node}"
    yield f"rules {walk.node} | grep {walk.front.address or walk.front.number}"


def _target(subject: Subject, walk: Walk) -> str:
    service = subject.service
    name = service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"
    return name if len(service.ports) == 1 else f"{name}:{walk.front.port.name or walk.front.port.port}"
