"""``spread``: how the flows spread over the pods that they reached. It needs the taps at the pods."""

from collections.abc import Collection, Mapping, Sequence

from proxylab.evidence.words import amount, listed, numbers
from proxylab.scenario.expect import Shares
from proxylab.scenario.words import Spread
from proxylab.statistics import SHARE_CHANGE, SIGNIFICANCE, flows_needed_for, flows_to_stick, spread_p_value
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict


def _judge(case: Case, expected: Spread | Shares) -> Verdict:
    """The spread of flows over the expected backends, or without those over the pods that they reached.

    A spread over too few flows is neither even nor uneven: see ``proxylab.statistics``.
    """
    backends = case.probe.expect.backend_names
    match expected:
        case Spread.STICKY:
            return _judge_sticky(case, backends)
        case Shares(of):
            shown = ", ".join(f"{name} {share:.1%}" for name, share in of.items())
            return _judge_shares(case, of, shown)
        case _:
            names = backends or tuple(case.arrivals_by_pod)
            shares = dict.fromkeys(names, 1 / len(names)) if names else {}
            return _judge_shares(
                case, shares, f"even, {1 / len(names):.1%} each" if names else "even", named=bool(backends)
            )


def _judge_shares(case: Case, shares: Mapping[str, float], expected: str, *, named: bool = True) -> Verdict:
    """Each pod got its expected share of all flows, as far as chance allows."""
    found = case.arrivals_by_pod
    counts = [found[name] for name in shares]
    flows, findings = sum(counts), Findings(case, case.unseen)
    findings.doubt_each(case.disagreements)
    _note_strangers(case, findings, shares)
    chance = spread_p_value(counts, tuple(shares.values())) if shares else 1.0
    if not named and len(shares) == 1:
        only = next(iter(shares))
        findings.doubt(
            f"the flows reached only {only}; without backends the judge cannot know whether there are others"
        )
    elif shares and flows < (needed := flows_needed_for(tuple(shares.values()))):
        findings.doubt(
            f"{amount(flows, 'flow')} over {amount(len(shares), 'backend')} cannot show a change of one share by "
            f"{SHARE_CHANGE:.0%}; {needed:,} flows can"
        )
    elif chance < SIGNIFICANCE:
        findings.missing(f"chance alone spreads as unevenly as this with p = {chance:.1e}")
    return findings.settle("spread", expected=expected, observed=numbers(found))


def _judge_sticky(case: Case, names: Sequence[str]) -> Verdict:
    """All flows of a client went to one backend, and there were too many of them for chance.

    A client is an address. Each client may have another backend; the flows after its first show whether affinity held.
    """
    found = case.arrivals_by_pod
    clients = case.clients
    findings = Findings(case, case.unseen)
    findings.doubt_each(case.disagreements)
    if names:
        _note_strangers(case, findings, names)
    strayed = {client: reached for client, reached in clients.items() if len(reached) > 1}
    if len(clients) > 1 and strayed:
        findings.wrong(f"{len(strayed):,} of {len(clients):,} clients went to several backends")
    elif strayed:
        findings.wrong(f"the flows of one client went to {listed(list(found))}")
    elif len(names) < 2:
        only = listed(list(found))
        findings.doubt(f"the flows reached only {only}; affinity shows only among two backends or more")
    elif len(case.arrived) < (needed := flows_to_stick(len(names)) + max(len(clients), 1) - 1):
        findings.doubt(
            f"{amount(len(case.arrived), 'flow')} may all go to one of {len(names):,} backends by chance; "
            f"{needed:,} hardly do"
        )
    expected = "sticky, all to one" if len(clients) < 2 else "sticky, all of a client to one"
    return findings.settle("spread", expected=expected, observed=numbers(found))


def _note_strangers(case: Case, findings: Findings, names: Collection[str]) -> None:
    in_time = (name for flow in case.arrived if flow.number not in case.too_late for name in flow.reached)
    strangers = [name for name in dict.fromkeys(in_time) if name not in names]
    if strangers:
        findings.wrong(f"requests reached {listed(strangers)}, not an expected backend")
    findings.doubt_each(case.too_late)


SPREAD = Expectation[Case, Spread | Shares](
    key="spread",
    expected=lambda case: case.probe.expect.spread,
    judge=_judge,
    needs=Needs.ARRIVALS,
    shows_in_shares=True,
)
