"""Judges three stages by the packets of path tests: DNAT, masquerade and hairpin."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import TrafficPolicy
from proxylab.evidence.words import amount, listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds, nothing, unclear
from proxylab.features.diagnose.path_tests import DiallerKind, PathTest
from proxylab.features.diagnose.rules_stages import Rules
from proxylab.features.diagnose.subject import DiagnosedService
from proxylab.report.view import ProbeView
from proxylab.scenario.words import Frontend, Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import cause
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

_TRANSLATION = ("outcome", "backends")


class PathTestResult(Struct, frozen=True, kw_only=True):
    """A path test, and the verdict on its packets."""

    path_test: PathTest
    verdict: ProbeVerdict

    @property
    def case(self) -> Case:
        """The flows of the path test, sorted."""
        return self.verdict.case

    def unresolved(self, *expectations: str) -> Verdict | None:
        """The first of these expectations that failed, or else the first that did not pass."""
        found = [each for each in self.verdict.verdicts if each.expectation in expectations]
        failed = (each for each in found if each.judgement is Judgement.FAIL)
        return next(failed, next((each for each in found if each.judgement is not Judgement.PASS), None))

    def because(self, verdict: Verdict) -> str:
        """Why the verdict is not a pass, as a sentence."""
        sentence = ProbeView(self.verdict).cause or f"{'; '.join(verdict.reasons)}."
        return sentence if verdict.judgement is Judgement.FAIL else f"{'; '.join(verdict.reasons)}."


def judge_translation(subject: DiagnosedService, results: Sequence[PathTestResult]) -> Finding:
    """Judge whether each path test reaches only endpoints that its node may use."""
    if not results:
        return nothing(Stage.DNAT, "no pod, node or host of this lab may dial a frontend of it")
    doubtful: Finding | None = None
    for each in results:
        verdict = each.unresolved(*_TRANSLATION)
        if verdict is None:
            if elsewhere := _translated_elsewhere(each):
                seen = f"{each.path_test}: {elsewhere} translated the packet, not {each.path_test.node}"
                missing = f"no rule of {each.path_test.node} translated the packet"
                sentence = f"{each.path_test}: {missing}; {elsewhere} did, further on."
                return breaks(Stage.DNAT, (seen,), sentence, *_looks(subject, each.path_test))
            continue
        seen = f"{each.path_test}: {verdict.observed}"
        sentence = f"{each.path_test}: {each.because(verdict)}"
        if verdict.judgement is Judgement.FAIL:
            return breaks(Stage.DNAT, (seen,), sentence, *_looks(subject, each.path_test))
        doubtful = doubtful or unclear(Stage.DNAT, (seen,), sentence, *_looks(subject, each.path_test))
    if doubtful is not None:
        return doubtful
    flows = sum(len(each.case.flows) for each in results)
    hit = {
        (flow.arrivals[0].destination, flow.arrivals[0].destination_port)
        for each in results
        for flow in each.case.arrived
    }
    expected = dict.fromkeys(backend for each in results for backend in each.path_test.expected)
    reached = f"{sum(backend in hit for backend in expected):,} of {amount(len(expected), 'endpoint')} reached"
    frontends = len({each.path_test.frontend for each in results})
    return holds(Stage.DNAT, f"{amount(flows, 'flow')} to {amount(frontends, 'frontend')} were translated: {reached}")


def _translated_elsewhere(result: PathTestResult) -> str:
    """The node that translated, if it is not the one that should have; else empty."""
    translating = [rule for rule in result.case.translations if rule.translates_to in result.path_test.expected]
    return next((rule.count.node for rule in translating if rule.count.node != result.path_test.node), "")


def judge_masquerade(
    subject: DiagnosedService,
    rules: Rules,
    results: Sequence[PathTestResult],
    addresses: Mapping[str, tuple[IPAddress, ...]],
) -> Finding:
    """Judge whether endpoints see the right source address, and whether replies come back."""
    for each in results:
        finding = _mistaken(subject, rules, each, addresses) or _unanswered(subject, each)
        if finding is not None:
            return finding
    seen = list(_sources(subject, results))
    lacking = [f"{node}" for (node, _), programmed in rules.items() if not programmed.masquerades]
    if lacking:
        cause = f"{lacking[0]} has no rule that masquerades packets marked by the rules of Services."
        look = f"rules {lacking[0]} | grep -i masq"
        return breaks(Stage.MASQUERADE, (f"{lacking[0]} masquerades nothing",), cause, look)
    return holds(Stage.MASQUERADE, *(seen or ("no path test needs it",)))


def _mistaken(
    subject: DiagnosedService, rules: Rules, result: PathTestResult, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> Finding | None:
    """The finding that an endpoint saw the wrong source address."""
    path_test, case = result.path_test, result.case
    flow = next((flow for flow in case.arrived if _is_wrong(subject, path_test, flow, addresses)), None)
    if flow is None:
        return None
    saw = f"{flow.arrivals[0].netns_name} saw {flow.arrivals[0].source}"
    must = f"an address of {path_test.node}" if path_test.hidden else f"{path_test.dialler.name}'s own"
    sentence = _why_source(rules, result, flow)
    seen = f"{path_test}: {saw}, and must see {must}"
    return breaks(
        Stage.MASQUERADE,
        (seen,),
        f"{seen}; {sentence}",
        *_looks(subject, path_test),
        f"rules {path_test.node} | grep -i masq",
    )


def _is_wrong(
    subject: DiagnosedService, path_test: PathTest, flow: Flow, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> bool:
    arrival = flow.arrivals[0]
    if path_test.hidden is None:
        return False
    if not path_test.hidden:
        return arrival.source not in path_test.dialler.addresses
    # A packet to a program of the node itself never leaves the node, so nothing masquerades it.
    if subject.pod_at(arrival.destination) is None and arrival.destination in addresses.get(path_test.node, ()):
        return False
    return arrival.source not in addresses.get(path_test.node, ())


def _why_source(rules: Rules, result: PathTestResult, flow: Flow) -> str:
    path_test = result.path_test
    programmed = rules[path_test.node, path_test.frontend.family]
    if path_test.hidden and not programmed.masquerades:
        return f"{path_test.node} has no rule that masquerades marked packets."
    verdict = Verdict(
        expectation="source",
        judgement=Judgement.FAIL,
        expected="",
        observed=str(flow.arrivals[0].source),
        position=result.verdict.probe.position,
        example=flow.number,
    )
    sentence = cause(result.case, verdict, result.verdict.plan, result.verdict.traced, result.verdict.service)
    return sentence or ("nothing masqueraded it." if path_test.hidden else "something masqueraded it.")


def _unanswered(subject: DiagnosedService, result: PathTestResult) -> Finding | None:
    """The finding that a reply did not come back as it must."""
    verdict = result.unresolved("reply")
    if verdict is None:
        return None
    seen = f"{result.path_test}: {verdict.observed or 'no reply'}"
    sentence = f"{result.path_test}: {result.because(verdict)}"
    make = breaks if verdict.judgement is Judgement.FAIL else unclear
    return make(Stage.MASQUERADE, (seen,), sentence, *_looks(subject, result.path_test))


def _sources(subject: DiagnosedService, results: Sequence[PathTestResult]) -> Iterator[str]:
    """The source addresses that endpoints saw, in clauses, and the setting that decides."""
    by_setting: dict[tuple[bool, str], dict[str, None]] = {}
    for path_test in (each.path_test for each in results if each.path_test.hidden is not None):
        decided = (bool(path_test.hidden), _setting(subject, path_test))
        by_setting.setdefault(decided, {})[path_test.dialler.name] = None
    for (is_hidden, setting), names in by_setting.items():
        if is_hidden:
            yield f"endpoints see the node's address in place of {listed(list(names))}{setting}"
        else:
            yield f"{listed(list(names))} {'keeps its address' if len(names) == 1 else 'keep their addresses'}{setting}"
    if results:
        yield "all replies came back"


def _setting(subject: DiagnosedService, path_test: PathTest) -> str:
    """The setting of Kubernetes behind the source that endpoints see, and the one for the other source."""
    if not path_test.frontend.is_internal:
        policy = subject.service.external_traffic_policy
        other = "Local keeps the client's address" if policy is TrafficPolicy.CLUSTER else "Cluster masquerades"
        return f", since externalTrafficPolicy is {policy} ({other})"
    if path_test.dialler.kind is DiallerKind.POD:
        return ", since masqueradeAll is true" if path_test.hidden else ""
    return " at a cluster IP, since clusterCIDR leaves the client out" if path_test.hidden else ""


def judge_hairpin(subject: DiagnosedService, results: Sequence[PathTestResult]) -> Finding:
    """Judge whether endpoints reach themselves through their Service."""
    if not results:
        return nothing(Stage.HAIRPIN, "no endpoint is a pod that can dial its own Service")
    reached: dict[str, None] = {}
    for each in results:
        path_test, case = each.path_test, each.case
        own = [flow for flow in case.arrived if flow.arrivals[0].destination in path_test.dialler.addresses]
        kept = next((flow for flow in own if flow.arrivals[0].source in path_test.dialler.addresses), None)
        verdict = each.unresolved("outcome", "reply")
        look = (
            f"trace {path_test.dialler.name} {_target(subject, path_test)}",
            f"rules {path_test.node} | grep -i masq",
        )
        if kept is not None:
            seen = f"{path_test.dialler.name} got its own packet from its own address"
            source = kept.arrivals[0].source
            sentence = f"{seen} ({source}), so its reply never passes {path_test.node}: nothing masqueraded the packet."
            return breaks(Stage.HAIRPIN, (seen,), sentence, *look)
        if verdict is not None:
            seen = f"{path_test.dialler.name} to itself: {verdict.observed or Outcome.DROPPED}"
            sentence = f"{path_test.dialler.name} does not reach itself through the Service: {each.because(verdict)}"
            make = breaks if verdict.judgement is Judgement.FAIL else unclear
            return make(Stage.HAIRPIN, (seen,), sentence, *look)
        if own:
            reached[path_test.dialler.name] = None
    if not reached:
        return nothing(Stage.HAIRPIN, "session affinity led no endpoint to itself")
    by = "itself, by an address of its node" if len(reached) == 1 else "themselves, by an address of their node"
    return holds(Stage.HAIRPIN, f"{listed(list(reached))} reached through the Service by {by}")


def _looks(subject: DiagnosedService, path_test: PathTest) -> Iterator[str]:
    """The commands that show a path test."""
    via = "" if path_test.frontend.via is Frontend.CLUSTER_IP else f" --via {path_test.frontend.via}"
    named = path_test.at is not None or path_test.dialler.kind is DiallerKind.HOST
    node = f" --node {path_test.node}" if named else ""
    yield f"trace {path_test.dialler.name} {_target(subject, path_test)}{via}{node}"
    yield f"rules {path_test.node} | grep {path_test.frontend.address or path_test.frontend.port_number}"


def _target(subject: DiagnosedService, path_test: PathTest) -> str:
    service = subject.service
    name = service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"
    return name if len(service.ports) == 1 else f"{name}:{path_test.frontend.port.name or path_test.frontend.port.port}"
