"""The last three stations in what packets showed: who was reached, as whom, and whether endpoints reach themselves.

Owns: ``judge_translation``, ``judge_masquerade`` and ``judge_hairpin``.
Must not: send; and it judges no packet by itself: what became of one is the verdict's word (``proxylab.verdict``).
"""

from collections.abc import Iterator, Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.diagnosis.model import Finding, Stage, breaks, holds, nothing, unclear
from proxylab.diagnosis.path_tests import Kind, PathTest
from proxylab.diagnosis.ruling import Rules
from proxylab.diagnosis.subject import Subject
from proxylab.evidence.words import amount, listed
from proxylab.frozen import dataclass
from proxylab.scenario.model import Frontend, Outcome
from proxylab.verdict.case import Case, open_case
from proxylab.verdict.causes import cause
from proxylab.verdict.explain import why
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict
from proxylab.verdict.rules import translations

__all__ = ["PathTestResult", "judge_hairpin", "judge_masquerade", "judge_translation"]

_TRANSLATION = ("outcome", "backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTestResult:
    """A walk, and the verdict on what it showed."""

    path_test: PathTest
    verdict: ProbeVerdict

    @property
    def case(self) -> Case:
        """The flows, sorted."""
        return open_case(self.verdict.probe, self.verdict.resolved, self.verdict.evidence)

    def unresolved(self, *expectations: str) -> Verdict | None:
        """The verdict on one of these that is no pass, a failure before what is in doubt."""
        found = [each for each in self.verdict.verdicts if each.expectation in expectations]
        failed = (each for each in found if each.judgement is Judgement.FAIL)
        return next(failed, next((each for each in found if each.judgement is not Judgement.PASS), None))

    def because(self, verdict: Verdict) -> str:
        """Why it is no pass, as a sentence."""
        sentence = why(self.case, self.verdict) or f"{'; '.join(verdict.reasons)}."
        return sentence if verdict.judgement is Judgement.FAIL else f"{'; '.join(verdict.reasons)}."


def judge_translation(subject: Subject, walked: Sequence[PathTestResult]) -> Finding:
    """Whoever dials a front reaches an endpoint that is due, and none besides."""
    if not walked:
        return nothing(Stage.DNAT, "nobody in this lab may dial a front of it")
    doubtful: Finding | None = None
    for each in walked:
        verdict = each.unresolved(*_TRANSLATION)
        if verdict is None:
            if elsewhere := _translated_elsewhere(each):
                told = f"{elsewhere} translated it, and not {each.path_test.node}"
                missing = f"no rule of {each.path_test.node} translated it"
                sentence = f"{each.path_test}: {missing}; it went on, and {elsewhere} did."
                return breaks(Stage.DNAT, (f"{each.path_test}: {told}",), sentence, *_looks(subject, each.path_test))
            continue
        told = f"{each.path_test}: {verdict.observed}"
        sentence = f"{each.path_test}: {each.because(verdict)}"
        if verdict.judgement is Judgement.FAIL:
            return breaks(Stage.DNAT, (told,), sentence, *_looks(subject, each.path_test))
        doubtful = doubtful or unclear(Stage.DNAT, (told,), sentence, *_looks(subject, each.path_test))
    if doubtful is not None:
        return doubtful
    flows = sum(len(each.case.flows) for each in walked)
    hit = {
        (flow.arrivals[0].destination, flow.arrivals[0].destination_port)
        for each in walked
        for flow in each.case.arrived
    }
    due = dict.fromkeys(backend for each in walked for backend in each.path_test.due)
    reached = f"{sum(backend in hit for backend in due):,} of {amount(len(due), 'endpoint')} reached"
    frontends = len({each.path_test.frontend for each in walked})
    return holds(Stage.DNAT, f"{amount(flows, 'flow')} to {amount(frontends, 'front')} were translated: {reached}")


def _translated_elsewhere(walked: PathTestResult) -> str:
    """The node that led a walk to an endpoint, if it was another than the one that is due to."""
    translating = [
        rule for rule in translations(walked.case.evidence.counts) if rule.translates_to in walked.path_test.due
    ]
    return next((rule.count.node for rule in translating if rule.count.node != walked.path_test.node), "")


def judge_masquerade(
    subject: Subject, rules: Rules, walked: Sequence[PathTestResult], addresses: Mapping[str, tuple[IPAddress, ...]]
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
        return breaks(Stage.MASQUERADE, (f"{lacking[0]} masquerades nothing",), cause, look)
    return holds(Stage.MASQUERADE, *(seen or ("nothing dialled here needs it",)))


def _mistaken(
    subject: Subject, rules: Rules, walked: PathTestResult, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> Finding | None:
    """A source that endpoints must not see, or one that they must and do not."""
    path_test, case = walked.path_test, walked.case
    flow = next((flow for flow in case.arrived if _is_wrong(subject, path_test, flow, addresses)), None)
    if flow is None:
        return None
    saw = f"{flow.arrivals[0].netns_name} saw {flow.arrivals[0].source}"
    must = f"an address of {path_test.node}" if path_test.hidden else f"{path_test.dialler.name}'s own"
    sentence = _why_source(rules, walked, flow)
    told = f"{path_test}: {saw}, and must see {must}"
    return breaks(
        Stage.MASQUERADE,
        (told,),
        f"{told}; {sentence}",
        *_looks(subject, path_test),
        f"rules {path_test.node} | grep -i masq",
    )


def _is_wrong(
    subject: Subject, path_test: PathTest, flow: Flow, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> bool:
    arrival = flow.arrivals[0]
    if path_test.hidden is None:
        return False
    if not path_test.hidden:
        return arrival.source not in path_test.dialler.addresses
    # What a node hands to a program of its own never leaves, so nothing masquerades it.
    if subject.pod_at(arrival.destination) is None and arrival.destination in addresses.get(path_test.node, ()):
        return False
    return arrival.source not in addresses.get(path_test.node, ())


def _why_source(rules: Rules, walked: PathTestResult, flow: Flow) -> str:
    path_test = walked.path_test
    programmed = rules[path_test.node, path_test.frontend.family]
    if path_test.hidden and not programmed.masquerades:
        return f"{path_test.node} has no rule that masquerades what was marked."
    verdict = Verdict(
        expectation="source",
        judgement=Judgement.FAIL,
        expected="",
        observed=str(flow.arrivals[0].source),
        position=walked.verdict.probe.position,
        example=flow.number,
    )
    sentence = cause(walked.case, verdict, walked.verdict.plan, walked.verdict.traced)
    return sentence or ("nothing masqueraded it." if path_test.hidden else "something masqueraded it.")


def _unanswered(subject: Subject, walked: PathTestResult) -> Finding | None:
    """What was answered and did not come back as it must."""
    verdict = walked.unresolved("reply")
    if verdict is None:
        return None
    told = f"{walked.path_test}: {verdict.observed or 'no reply'}"
    sentence = f"{walked.path_test}: {walked.because(verdict)}"
    make = breaks if verdict.judgement is Judgement.FAIL else unclear
    return make(Stage.MASQUERADE, (told,), sentence, *_looks(subject, walked.path_test))


def _sources(walked: Sequence[PathTestResult]) -> Iterator[str]:
    """As whom clients were seen."""
    hidden = dict.fromkeys(each.path_test.dialler.name for each in walked if each.path_test.hidden)
    kept = dict.fromkeys(each.path_test.dialler.name for each in walked if each.path_test.hidden is False)
    if hidden:
        yield f"endpoints see the node in the place of {listed(list(hidden))}"
    if kept:
        yield f"{listed(list(kept))} {'keeps its address' if len(kept) == 1 else 'keep their addresses'}"
    if walked:
        yield "all answers came back"


def judge_hairpin(subject: Subject, walked: Sequence[PathTestResult]) -> Finding:
    """An endpoint that dials its Service and is chosen itself is reached, and answers."""
    if not walked:
        return nothing(Stage.HAIRPIN, "no endpoint is a pod that can dial its own Service")
    reached: dict[str, None] = {}
    for each in walked:
        path_test, case = each.path_test, each.case
        own = [flow for flow in case.arrived if flow.arrivals[0].destination in path_test.dialler.addresses]
        kept = next((flow for flow in own if flow.arrivals[0].source in path_test.dialler.addresses), None)
        verdict = each.unresolved("outcome", "reply")
        look = (
            f"trace {path_test.dialler.name} {_target(subject, path_test)}",
            f"rules {path_test.node} | grep -i masq",
        )
        if kept is not None:
            told = f"{path_test.dialler.name} got its own packet from its own address"
            source = kept.arrivals[0].source
            sentence = f"{told} ({source}), so its answer never passes {path_test.node}: nothing masqueraded it."
            return breaks(Stage.HAIRPIN, (told,), sentence, *look)
        if verdict is not None:
            told = f"{path_test.dialler.name} to itself: {verdict.observed or Outcome.DROPPED}"
            sentence = f"{path_test.dialler.name} does not reach itself through the Service: {each.because(verdict)}"
            make = breaks if verdict.judgement is Judgement.FAIL else unclear
            return make(Stage.HAIRPIN, (told,), sentence, *look)
        if own:
            reached[path_test.dialler.name] = None
    if not reached:
        return nothing(Stage.HAIRPIN, "session affinity led no endpoint to itself")
    return holds(Stage.HAIRPIN, f"{listed(list(reached))} reached through the Service by {_themselves(reached)}")


def _themselves(names: dict[str, None]) -> str:
    return "itself, by an address of its node" if len(names) == 1 else "themselves, by an address of their node"


def _looks(subject: Subject, path_test: PathTest) -> Iterator[str]:
    """The commands that show a walk."""
    via = "" if path_test.frontend.via is Frontend.CLUSTER_IP else f" --via {path_test.frontend.via}"
    named = path_test.at is not None or path_test.dialler.kind is Kind.HOST
    node = f" --node {path_test.node}" if named else ""
    yield f"trace {path_test.dialler.name} {_target(subject, path_test)}{via}{node}"
    yield f"rules {path_test.node} | grep {path_test.frontend.address or path_test.frontend.number}"


def _target(subject: Subject, path_test: PathTest) -> str:
    service = subject.service
    name = service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"
    return name if len(service.ports) == 1 else f"{name}:{path_test.frontend.port.name or path_test.frontend.port.port}"
