"""``http``: what HTTP answers say, and behind an Ingress which pods gave them and what these saw.

It needs a report of each flow's socket. Behind an Ingress the pod's own answer is the evidence of the second
connection, from the controller to the pod: its name, the source that it saw, and X-Forwarded-For. The packets of that
connection must say the same.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, HttpReport, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import STACK
from proxylab.scenario.expect import HttpExpect
from proxylab.verdict.case import Case
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.model import Verdict

_SUCCESS: Final = 2
"""The class of a status that a controller gives no request by itself."""


def _judge(case: Case, expected: HttpExpect) -> Verdict:
    """Every flow got the HTTP answer that the author expects."""
    findings = Findings(case)
    answers: dict[int, list[HttpReport]] = {flow.number: [] for flow in case.flows}
    if not {report.flow for report in case.evidence.http} <= answers.keys():
        findings.doubt("an HTTP answer belongs to none of the probe's flows")
    for report in case.evidence.http:
        answers.get(report.flow, []).append(report)
    for flow, reports in answers.items():
        if len(reports) != 1:
            findings.doubt(f"HTTP answered it {len(reports)} times" if reports else "no HTTP request was sent", flow)
        for report in reports:
            if report.error == "timeout":
                findings.missing("no answer came by HTTP", flow)
            elif (fault := next(_faults(case, expected, report), "")) != "":
                findings.wrong(fault, flow)
    _judge_ends(expected, case, findings)
    _judge_backends(expected, case, findings)
    for report in case.evidence.http:
        if report.backend and (doubt := _contradiction(case, report)):
            findings.doubt(doubt, report.flow)
    seen = Counter(report.error or _shown(report) for report in case.evidence.http)
    return findings.settle(
        "http",
        expected=_expected(expected),
        observed=", ".join(f"{count:,} x {what}" if len(seen) > 1 else what for what, count in seen.most_common())
        or "none",
        may_be_late=case.may_be_late,
        witnesses=[f"{amount(len(answers), 'flow')} answered by HTTP"],
    )


def _faults(case: Case, expected: HttpExpect, report: HttpReport) -> Iterator[str]:
    """How an answer differs from the expected one, the decisive difference first."""
    if report.error:
        yield (
            f"no answer by HTTP: {report.error}"
            if case.resolved.request
            else (f"no answer by HTTP: the socket reports {report.error}")
        )
        return
    if report.status != expected.status:
        yield f"the status was {report.status}"
    if expected.local_endpoints not in (None, report.local_endpoints):
        yield f"it reported {_endpoints(report.local_endpoints)}"
    if expected.backends is not None and report.backend not in expected.backends:
        yield f"{report.backend} answered" if report.backend else "no pod answered"
    yield from _values_that_differ(expected, report)
    for named, address, what in (
        (expected.source, str(report.source or ""), "the pod saw a connection from"),
        (expected.forwarded_for, report.forwarded_for, "the pod saw X-Forwarded-For"),
    ):
        if named is not None and address not in _addresses(case, named):
            yield f"{what} {_called(case, address)}"


def _values_that_differ(expected: HttpExpect, report: HttpReport) -> Iterator[str]:
    """The headers and the values of the body that are missing or others than the author expects."""
    for name, value in (expected.headers or {}).items():
        if (found := report.headers.get(name.lower())) != value:
            yield f"the header {name} was {found}" if found is not None else f"it had no header {name}"
    for name, value in (expected.body or {}).items():
        if (found := report.body.get(name)) != value:
            yield f"its body said {name}: {found}" if found is not None else f"its body had no {name}"


def _contradiction(case: Case, report: HttpReport) -> str:
    """How the packets of the second connection contradict the pod's answer; empty where they say the same."""
    own = {each.address for each in case.resolved.receivers if each.name == report.backend and each.device != STACK}
    if not own:
        return ""  # the pod is in its node's namespace, where no tap sees what comes to it
    came = [
        each
        for each in case.evidence.behind
        if (each.flow, each.packet, each.direction) == (report.flow, Packet.REQUEST, Direction.IN)
        and each.destination in own
    ]
    if not came:
        return f"{report.backend} answered, and no tap saw the request come to it"
    sources = listed(sorted({str(each.source) for each in came}), "or")
    return (
        ""
        if any(each.source == report.source for each in came)
        else (f"{report.backend} says that the request came from {report.source}, and a tap saw it come from {sources}")
    )


def _judge_backends(expected: HttpExpect, case: Case, findings: Findings) -> None:
    """Note the pods that no request came to, where every request got an answer from some pod."""
    answered = {report.backend for report in case.evidence.http}
    if "" in answered:
        return
    if missed := [name for name in expected.backends or () if name not in answered]:
        findings.wrong(f"no request came to {listed(missed)}")


def _judge_ends(expected: HttpExpect, case: Case, findings: Findings) -> None:
    """Note answers to a request through an Ingress that come from no endpoint to which its host and path lead.

    Each connection of the controller must lead to one of them, or to a pod that the author names. The controller may
    answer by itself, but not with a success where an endpoint or nothing should. Packets to programs on a node pass no
    tap, so there the answer itself says who gave it.
    """
    request = case.resolved.request
    if request is None or request.endpoints is None:
        return
    ends, named = {(each.address, each.port) for each in request.endpoints}, expected.backends or ()
    on_nodes = {each.address for each in case.resolved.receivers if each.device == STACK}
    asked = f"endpoint behind {request.host}{request.path}"
    whose = f"which is no {asked}"
    came = _behind_controller(case)
    for report in (each for each in case.evidence.http if not each.error):
        reached = came[report.flow]
        strangers = [
            each
            for each in reached
            if (each.destination, each.destination_port) not in ends and each.netns_name not in named
        ]
        if strangers:
            at = endpoint(strangers[0].destination, strangers[0].destination_port)
            findings.wrong(f"the request came to {strangers[0].netns_name}, at {at}, {whose}", report.flow)
        if reached or report.backend in named:
            continue
        if report.backend:
            if report.backend not in _names_at(case, ends):
                findings.wrong(f"{report.backend} answered, {whose}", report.flow)
        elif expected.status // 100 == _SUCCESS and on_nodes.isdisjoint(address for address, _ in ends):
            findings.missing(f"the controller answered by itself: no tap saw a request come to an {asked}", report.flow)


def _behind_controller(case: Case) -> defaultdict[int, list[Observation]]:
    """Where requests of the controller's own connections arrived, by flow. The first may be a proxy's, to it."""
    controllers = {each.address for each in case.resolved.endpoints}
    found: defaultdict[int, list[Observation]] = defaultdict(list)
    for each in case.evidence.behind:
        arrived = (each.packet, each.direction) == (Packet.REQUEST, Direction.IN)
        if arrived and each.netns_name not in case.resolved.nodes and each.destination not in controllers:
            found[each.flow].append(each)
    return found


def _names_at(case: Case, ends: Collection[tuple[IPAddress, int]]) -> set[str]:
    """The pods that answer at these addresses and ports."""
    return {
        each.name
        for each in case.resolved.receivers
        for address, port in ends
        if each.address == address and (not each.ports or port in each.ports)
    }


def _addresses(case: Case, named: str) -> tuple[str, ...]:
    """The addresses that a name of the scenario has, or the address itself."""
    return tuple(map(str, case.resolved.addresses.get(named, (named,))))


def _called(case: Case, address: str) -> str:
    owners = [name for name, addresses in case.resolved.addresses.items() if address in map(str, addresses)]
    return f"{address or 'nothing'}{f', of {listed(owners)}' if owners else ''}"


def _expected(expected: HttpExpect) -> str:
    parts = [str(expected.status)]
    if expected.local_endpoints is not None:
        parts.append(_endpoints(expected.local_endpoints))
    if expected.backends is not None:
        parts.append(f"from {listed(expected.backends, 'or')}")
    if expected.source is not None:
        parts.append(f"which sees {expected.source}")
    if expected.forwarded_for is not None:
        parts.append(f"X-Forwarded-For {expected.forwarded_for}")
    parts += [f"{name}: {value}" for each in (expected.headers, expected.body) for name, value in (each or {}).items()]
    return ", ".join(parts)


def _shown(report: HttpReport) -> str:
    parts = [str(report.status)]
    if report.local_endpoints is not None:
        parts.append(_endpoints(report.local_endpoints))
    if report.backend:
        parts.append(f"from {report.backend}, which sees {report.source}")
    if report.forwarded_for:
        parts.append(f"X-Forwarded-For {report.forwarded_for}")
    return ", ".join(parts)


def _endpoints(number: int | None) -> str:
    return "no number of local endpoints" if number is None else amount(number, "local endpoint")


def _as_seen(case: Case, verdict: Verdict) -> str:
    report = next((each for each in case.evidence.http if each.flow == (verdict.example or 0)), None)
    if report is None:
        return ""
    if report.error:
        return f"{endpoint(*case.dialled)} did not answer {case.resolved.sender.name} by HTTP: {report.error}."
    behind = f", from pod {report.backend} behind it" if report.backend else ""
    return f"{endpoint(*case.dialled)} answered with status {report.status}{behind}."


HTTP = Expectation[Case, HttpExpect](key="http", judge=_judge, as_seen=_as_seen)
