"""The expectation ``error``: which ICMP error the sender hears about each flow, and which machine sent it.

The source of an error does not say who sent it: the node that translates a flow back gives an error of another machine
the address that was dialled (``nf_nat_icmp_reply_translation`` in net/netfilter/nf_nat_proto.c). So the taps say it
(``hops.origin``): a machine made the error that a tap first saw leave it, and the router, which has no taps, made one
that a tap first saw come in. What the error quotes must be the packet that the sender sent.
"""

from collections.abc import Iterator, Sequence

from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import listed
from proxylab.plan.device_names import ROUTER
from proxylab.plan.resolved import STACK
from proxylab.scenario.expect import ErrorExpect
from proxylab.verdict.case import Case
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.flows import Flow
from proxylab.verdict.hops import altered_clauses, origin
from proxylab.verdict.icmp_errors import icmp_words, kind_of, rejecting_error
from proxylab.verdict.model import Verdict


def _judge(case: Case, expected: ErrorExpect) -> Verdict:
    """Each flow was answered by such an error, and by nothing else."""
    findings, heard, sender = Findings(case), dict[str, None](), case.resolved.sender.name
    quotes = altered_clauses(case.evidence.altered, replies=False)
    for flow in case.flows:
        errors = [each for each in (*flow.unreachables, *flow.errors, *flow.advice) if kind_of(each) is not None]
        heard |= dict.fromkeys(map(icmp_words, errors))
        others = [icmp_words(each) for each in errors if not _matches(each, expected)]
        if others:
            findings.wrong(f"{sender} heard {listed(others)}", flow.number)
        elif not errors:
            findings.missing(f"{sender} heard no ICMP error", flow.number)
        if flow.number in quotes:
            findings.wrong(quotes[flow.number], flow.number)
        for clause in _strange(case, flow, expected, errors):
            findings.wrong(clause, flow.number)
        if errors and expected.sent_by and _maker(case, flow, errors[0]) is None:
            findings.doubt(
                f"only {sender}'s own stack saw the ICMP error, which does not show who sent it", flow.number
            )
    by = f" by {expected.sent_by}" if expected.sent_by else ""
    return findings.settle(
        "error",
        expected=f"{(expected.code or expected.kind).replace('-', ' ')}{by}",
        observed=listed(list(heard)) or "no ICMP error",
        may_be_late=case.may_be_late,
    )


def _matches(error: Observation, expected: ErrorExpect) -> bool:
    return kind_of(error) is expected.kind and expected.code in (None, rejecting_error(error))


def _maker(case: Case, flow: Flow, error: Observation) -> str | None:
    """The namespace that made an error, empty for a machine without taps; ``None`` if the taps do not show it.

    An error that came by a link, and that no tap saw on its way there, is of a machine without taps: all others have
    one at each device.
    """
    first = origin(flow, error.packet)
    if first is None:
        return None if case.resolved.sender.device == STACK else ""
    return first.maker


def _strange(case: Case, flow: Flow, expected: ErrorExpect, errors: Sequence[Observation]) -> Iterator[str]:
    """What is wrong besides the kind: another machine sent the error, it is for another address, the packet arrived."""
    sender, homes = case.resolved.sender, {each.name: each.namespace for each in case.resolved.receivers}
    wanted = "" if expected.sent_by == ROUTER else homes.get(expected.sent_by, expected.sent_by)
    for each in errors[:1] if expected.sent_by else ():
        maker = _maker(case, flow, each)
        if maker not in (None, wanted):
            yield f"{maker or ROUTER} sent the ICMP error"
    for each in errors:
        if each.destination != sender.address_of_flow(flow.number):
            yield f"the ICMP error is addressed to {each.destination}, not to {sender.name}"
    if flow.arrivals:
        yield f"the packet came to {listed(list(flow.reached))}"
    if flow.replies:
        yield f"{sender.name} heard an answer"


ERROR = Expectation[Case, ErrorExpect](key="error", judge=_judge)
