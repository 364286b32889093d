"""Fills in what Kubernetes promises: a probe without ``expect``, or with ``also: promises``, gets the oracle's answer.

The answer depends on the proxy's mode and version, so it is filled in where a scenario becomes its cases for an engine.
What the author writes stays; the oracle adds the other keys, and notes the rows from which each follows. Where it
does not know what must happen, it adds nothing, and says why: the judge is then inconclusive.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.cluster.configuration import Mode
from proxylab.oracle.answers import FlowAnswer, ReachedEndpoint, SeenSource
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import AskedProbe, ask, moment_of, outside_reach
from proxylab.oracle.moment import Moment
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.expect import (
    Backend,
    Expect,
    HttpExpect,
    Masqueraded,
    Preserved,
    ReplyByBackend,
    Shares,
    SourceAddress,
    SourceByBackend,
)
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome, Reply, Spread
from proxylab.statistics import flows_needed_for, flows_to_hit_all, flows_to_stick

_TOLERANCE: Final = 1e-9
_OF_THE_NETWORK: Final = "masquerade-of-the-network"


def promised_cases(scenario: Scenario, mode: str, version: Version | None = None) -> tuple[Scenario, ...]:
    """The cases of a scenario for a proxy of that mode and version, with what is promised of it filled in.

    Raises:
        ScenarioError: a probe needs the promises, and the scenario cannot be laid out.
    """
    return tuple(with_promises(case, mode, version) for case in cases(scenario, mode, version))


def with_promises(case: Scenario, mode: str, version: Version | None) -> Scenario:
    """The case, in which every probe has the expectations that its author leaves to the promises."""
    if all(each.expect.also is None for each in case.all_probes):
        return case
    filled = _Filled(assemble(case), Mode(mode), version)
    return replace(
        case,
        probes=tuple(map(filled.probe, case.probes)),
        steps=tuple(replace(step, probes=tuple(map(filled.probe, step.probes))) for step in case.steps),
    )


class _Filled:
    """Fills in the expectations of one case's probes; each moment has an oracle, which is made once."""

    def __init__(self, assembly: Assembly, mode: Mode, version: Version | None) -> None:
        self._assembly, self._mode, self._version = assembly, mode, version
        self._oracles: dict[int, tuple[Moment, Oracle]] = {}

    def probe(self, probe: Probe) -> Probe:
        if probe.expect.also is None:
            return probe
        if self._version is None:
            return _without_answer(probe, "the version of the proxy is not known")
        if not self._assembly.scenario.foretells(probe):
            return _without_answer(probe, "kubectl changes the cluster before it")
        if why := outside_reach(self._assembly, probe, self._version):
            return _without_answer(probe, why)
        number = self._assembly.scenario.steps_before(probe)
        if number not in self._oracles:
            moment = moment_of(self._assembly, number, self._mode, self._version)
            self._oracles[number] = moment, Oracle(moment)
        return with_answer(probe, ask(self._assembly, probe, *self._oracles[number]))


def with_answer(probe: Probe, asked: AskedProbe) -> Probe:
    """The probe with what the oracle says of it, besides what its author expects."""
    if asked.outside:
        return _without_answer(probe, asked.outside)
    answers = [answer for _, answer in asked.flows]
    outcomes = dict.fromkeys(outcome for answer in answers for outcome in answer.outcomes)
    written = probe.expect
    if "outcome" in written.positions and written.outcome not in outcomes:
        promised = " or ".join(outcomes)
        why = f"{promised} is promised, and expect.outcome says {written.outcome}: take `outcome` or `also` out"
        return _without_answer(probe, why)
    if "outcome" in written.positions:
        outcomes = {written.outcome: None}
    if len(outcomes) > 1:
        if probe.send.flows not in (None, 1):
            why = f"each of several flows may end otherwise ({' or '.join(outcomes)}): leave send.flows out, or 1"
            return _without_answer(probe, why)
        probe = replace(probe, send=replace(probe.send, flows=1))
    found = [_expected(probe, asked, answers, outcome) for outcome in outcomes]
    return replace(probe, expect=replace(found[0], either=tuple(found[1:])))


def _without_answer(probe: Probe, why: str) -> Probe:
    return replace(probe, expect=replace(probe.expect, undecided=why))


class _Promised(Struct, frozen=True):
    """A key that the oracle fills in: its field of ``Expect``, its value, and the rows from which it follows."""

    field: str
    value: Any
    rows: tuple[str, ...]


def _expected(probe: Probe, asked: AskedProbe, answers: Sequence[FlowAnswer], outcome: Outcome) -> Expect:
    """What the author expects, with each further key of that outcome."""
    written = probe.expect
    promised = [each for each in _promised(probe, asked, answers, outcome) if each.field not in written.positions]
    if any(each.field == "http" for each in promised):
        promised = [each for each in promised if each.field != "outcome"]
    positions = {**written.positions, **{each.field: written.position for each in promised}}
    follows = {each.field: each.rows for each in promised}
    follows["endpoint"] = _rows(answers, "endpoints")
    follows["reply"] = _rows(answers, "reply") or _rows(answers, "outcome")
    if asked.name is not None:
        follows["name"] = asked.name.rows
    changes = {each.field: each.value for each in promised}
    return replace(written, **changes, positions=positions, follows=follows)


def _promised(probe: Probe, asked: AskedProbe, answers: Sequence[FlowAnswer], outcome: Outcome) -> Iterator[_Promised]:
    of_outcome = _rows(answers, "outcome")
    yield _Promised("outcome", outcome, of_outcome)
    if outcome is not Outcome.DELIVERED:
        if outcome is Outcome.REJECTED and (icmp := answers[0].icmp) is not None:
            yield _Promised("icmp", icmp, of_outcome)
        ends = {at for answer in answers for at in answer.at}
        if outcome is not Outcome.UNTRANSLATED and len(ends) == 1:
            yield _Promised("at", ends.pop(), of_outcome)
        return
    health = next((answer.health for answer in answers if answer.health is not None), None)
    if health is not None:
        yield _Promised("http", HttpExpect(status=health.status, local_endpoints=health.local_endpoints), of_outcome)
        return
    reached = [end for answer in answers for end in answer.reached]
    if not any(answer.is_scheduled for answer in answers):  # else flows need not reach each of them, however many
        backends = tuple(dict.fromkeys(Backend(end.name, end.port or None) for end in reached))
        yield _Promised("backends", backends, _rows(answers, "endpoints"))
    sender = asked.flows[0][0].sender.address
    of_source = _rows(answers, "source")
    source = _source(reached, sender, is_of_network=_OF_THE_NETWORK in of_source)
    if source is not None:
        yield _Promised("source", source, of_source)
    replies = {end.name: end.reply for end in reached}
    if not {Reply.UNTRANSLATED, Reply.NODE_PORT, Reply.NONE}.isdisjoint(replies.values()):
        first, *others = set(replies.values())
        yield _Promised("reply", ReplyByBackend(replies) if others else first, _rows(answers, "reply") or of_outcome)
    if len(answers) == 1:
        yield from _spread(probe, answers[0])


def _rows(answers: Iterable[FlowAnswer], part: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row for answer in answers for row in answer.rows.get(part, ())))


def _source(
    reached: Iterable[ReachedEndpoint], sender: IPAddress, *, is_of_network: bool
) -> Preserved | Masqueraded | SourceAddress | SourceByBackend | None:
    """What the backends see; ``None`` where one of them may see several addresses, by the way of the flow."""
    by_name: dict[str, dict[SeenSource, None]] = {}
    for end in reached:
        by_name.setdefault(end.name, {}).update(dict.fromkeys(end.sources))
    words: dict[str, Preserved | Masqueraded | SourceAddress] = {}
    for name, seen in by_name.items():
        first, *more = seen
        if all(each.is_masqueraded for each in seen) and not is_of_network:
            words[name] = Masqueraded()
        elif more:
            return None
        elif first.is_masqueraded or first.address != sender:
            words[name] = SourceAddress(first.address)
        else:
            words[name] = Preserved()
    alike = list(dict.fromkeys(words.values()))
    return alike[0] if len(alike) == 1 else SourceByBackend(words)


def _spread(probe: Probe, answer: FlowAnswer) -> Iterator[_Promised]:
    """How flows spread over the backends, where there are enough flows to show it."""
    shares: dict[str, float] = {}
    for end in answer.reached:
        shares[end.name] = shares.get(end.name, 0) + end.share
    flows = probe.send.flows
    if len(shares) < 2 or (answer.is_scheduled and answer.sticky is None):
        return
    if answer.sticky is not None:
        is_one_client = not probe.source.all_addresses
        if is_one_client and (flows is None or flows >= flows_to_stick(len(shares))):
            yield _Promised("spread", Spread.STICKY, _rows((answer,), "affinity"))
        return
    even = max(shares.values()) - min(shares.values()) < _TOLERANCE
    if flows is None or flows >= max(flows_needed_for(tuple(shares.values())), flows_to_hit_all(len(shares))):
        yield _Promised("spread", Spread.EVEN if even else Shares(shares), _rows((answer,), "endpoints"))
