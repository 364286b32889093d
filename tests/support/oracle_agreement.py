"""Compares what an author of the catalogue expects of a probe with what the oracle says must happen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from proxylab.addresses import Family
from proxylab.cluster.configuration import Mode
from proxylab.oracle.answers import FlowAnswer
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import AskedProbe, ask, moment_of, outside_reach
from proxylab.oracle.moment import Moment
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.plan.sources import snat_source
from proxylab.scenario.cases import cases
from proxylab.scenario.expect import (
    Expect,
    Masqueraded,
    NodeDevice,
    Preserved,
    ReplyByBackend,
    Shares,
    SourceAddress,
    SourceByBackend,
)
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome, Position, Reply, Spread

CATALOGUE = Path(__file__).resolve().parents[2] / "scenarios"


@dataclass(frozen=True)
class Compared:
    """One probe of the catalogue.

    ``outside`` is why the oracle does not say, or why the probe is about more than one moment. ``differences`` are what
    author and oracle see differently. ``because`` is the author's own reason why this proxy does not do what the probe
    expects of others; then the oracle agrees with what is expected of those.
    """

    scenario: str
    probe: str
    mode: Mode
    outside: str = ""
    differences: tuple[str, ...] = ()
    because: str = ""
    rows: frozenset[str] = frozenset()
    is_open: bool = False
    """Whether the oracle says that one of several outcomes must happen."""

    @property
    def id(self) -> str:
        """The scenario and the probe, as the author named them."""
        return f"{self.scenario}: {self.probe}"

    def __str__(self) -> str:
        return f"{self.mode}: {self.id}: {self.outside or self.because or '; '.join(self.differences)}"


@cache
def _scenario(file: Path) -> Scenario:
    return load_scenario(file)


def compared(mode: Mode, version: Version, files: tuple[Path, ...] = ()) -> Iterator[Compared]:
    """Every probe of the catalogue in one mode and version."""
    for file in files or tuple(sorted(CATALOGUE.rglob("*.lab.yaml"))):
        written = _scenario(file)
        usual = {probe.position: probe.expect for probe in written.all_probes}
        for case in cases(written, mode, version):
            yield from _of_case(case, usual, str(file.relative_to(CATALOGUE)), mode, version)


def _of_case(
    case: Scenario, usual: Mapping[Position, Expect], name: str, mode: Mode, version: Version
) -> Iterator[Compared]:
    assembly = assemble(case)
    oracles: dict[int, tuple[Moment, Oracle]] = {}
    for probe in case.all_probes:
        words, number = case.case.words(probe.name), case.steps_before(probe)
        if number not in oracles:
            moment = moment_of(assembly, number, mode, version)
            oracles[number] = moment, Oracle(moment)
        outside = outside_reach(assembly, probe, version)
        if outside:
            yield Compared(name, words, mode, outside)
            continue
        differences, asked = _judged(assembly, probe, probe.expect, *oracles[number])
        if asked.outside:
            yield Compared(name, words, mode, asked.outside)
            continue
        rows = frozenset(row for _, answer in asked.flows for part in answer.rows.values() for row in part)
        differences += _unreachable(asked)
        because = ""
        if (
            differences
            and probe.exceptions
            and not _judged(assembly, probe, usual[probe.position], *oracles[number])[0]
        ):
            because, differences = probe.exceptions[0].because, []
        is_open = any(len(answer.outcomes) > 1 for _, answer in asked.flows)
        yield Compared(name, words, mode, "", tuple(differences), because, rows, is_open)


def _judged(
    assembly: Assembly, probe: Probe, expect: Expect, moment: Moment, oracle: Oracle
) -> tuple[list[str], AskedProbe]:
    asked = ask(assembly, probe, moment, oracle)
    headless = asked.name is not None and "name-of-headless" in asked.name.rows
    found = [
        difference
        for resolved, answer in asked.flows
        for difference in _differences(assembly, probe, expect, resolved, answer, several=headless)
    ]
    if expect.backends and asked.name is not None and headless:
        owners = {pod.name for pod in assembly.plan.pods if not asked.name.addresses.isdisjoint(pod.addresses)}
        if owners != {each.name for each in expect.backends}:
            found.append(f"expected {sorted(each.name for each in expect.backends)}, the name gives {sorted(owners)}")
    return found, asked


def _unreachable(asked: AskedProbe) -> Iterator[str]:
    """Endpoints that no flow may reach by the weakest promise, which every flow has."""
    for resolved, answer in asked.flows:
        closed = {(each.address, each.port) for each in resolved.endpoints if not each.is_reachable}
        yield from (
            f"the oracle leads to {each.name}" for each in answer.reached if (each.address, each.port) in closed
        )


def _differences(
    assembly: Assembly,
    probe: Probe,
    expect: Expect,
    resolved: ResolvedProbe,
    answer: FlowAnswer,
    *,
    several: bool = False,
) -> Iterator[str]:
    if answer.outside:
        return
    outcomes = set(answer.outcomes)
    direct = {(each.address, each.port) for each in answer.reached} == {(resolved.destination, resolved.port)}
    if expect.outcome is Outcome.UNTRANSLATED and direct:
        outcomes.add(Outcome.UNTRANSLATED)
    if expect.outcome not in outcomes:
        yield f"expected {expect.outcome}, oracle {' or '.join(answer.outcomes)} at {answer.at} by {dict(answer.rows)}"
    elif expect.outcome is not Outcome.DELIVERED:
        yield from _refusals(expect, answer)
    elif expect.http is not None:
        yield from _http(expect, answer)
    else:
        if expect.backends and not several:
            yield from _backends(expect, resolved, answer)
        yield from _spread(probe, expect, answer)
        yield from _sources(assembly.plan_after(assembly.scenario.steps_before(probe)), expect, resolved, answer)
        yield from _replies(expect, answer)


def _refusals(expect: Expect, answer: FlowAnswer) -> Iterator[str]:
    at = (expect.at or "").partition("/")[0]
    if at and at not in answer.at and expect.outcome is not Outcome.UNTRANSLATED:
        yield f"expected at {at}, oracle {answer.at}"
    if expect.icmp is not None and expect.icmp is not answer.icmp:
        yield f"expected {expect.icmp}, oracle {answer.icmp}"


def _http(expect: Expect, answer: FlowAnswer) -> Iterator[str]:
    assert expect.http is not None
    told, counted = answer.health, expect.http.local_endpoints
    if told is not None and (told.status != expect.http.status or counted not in (None, told.local_endpoints)):
        yield f"expected {expect.http.status} {counted}, oracle {told}"
    if told is None and not answer.reached:
        yield f"expected an answer {expect.http.status}, oracle none"


def _backends(expect: Expect, resolved: ResolvedProbe, answer: FlowAnswer) -> Iterator[str]:
    """An author may know more of schedulers of IPVS than documents say: the next in turn, or the one of a hash."""
    wanted = {each.name for each in expect.backends or ()}
    named = {each.name for each in answer.reached}
    turns = resolved.flows == 1 and "shares/scheduled" in answer.rows.get("endpoints", ())
    if not (wanted == named or ((answer.sticky is not None or answer.is_scheduled or turns) and wanted <= named)):
        yield f"expected {sorted(wanted)}, oracle {sorted(named)} {dict(answer.rows)}"
    ports = {str(each) for each in expect.backends or () if each.port}
    if not ports <= {f"{each.name}:{each.port}" for each in answer.reached}:
        yield f"expected {sorted(ports)}, oracle {[(each.name, each.port) for each in answer.reached]}"


def _replies(expect: Expect, answer: FlowAnswer) -> Iterator[str]:
    for each in answer.reached:
        wanted = expect.reply.of.get(each.name) if isinstance(expect.reply, ReplyByBackend) else expect.reply
        if (wanted or Reply.TRANSLATED) is not each.reply:
            yield f"expected an answer of {each.name} that is {wanted or 'translated'}, oracle {each.reply}"


def _spread(probe: Probe, expect: Expect, answer: FlowAnswer) -> Iterator[str]:
    shares = {each.name: 0.0 for each in answer.reached}
    for each in answer.reached:
        shares[each.name] += each.share
    match expect.spread:
        case None:
            return
        case Spread.STICKY:
            if answer.sticky is None:
                yield "expected sticky, oracle not"
        case Spread.EVEN:
            one_client = not (probe.source.all_addresses or probe.source.address)
            if answer.is_scheduled or (answer.sticky is not None and one_client):
                yield "expected even, oracle sticky, or as a scheduler has it"
            if max(shares.values()) - min(shares.values()) > 1e-9:
                yield f"expected even, oracle {shares}"
        case Shares(of):
            if any(abs(share - shares.get(name, 0)) > 0.006 for name, share in of.items()):
                yield f"expected {of}, oracle {shares}"


def _sources(plan: Plan, expect: Expect, resolved: ResolvedProbe, answer: FlowAnswer) -> Iterator[str]:
    wanted_backends = {each.name for each in expect.backends or ()}
    for each in answer.reached:
        if answer.sticky is not None and wanted_backends and each.name not in wanted_backends:
            continue
        wanted = expect.source.of.get(each.name) if isinstance(expect.source, SourceByBackend) else expect.source
        for seen in each.sources:
            match wanted:
                case None:
                    right = True
                case Preserved():
                    right = not seen.is_masqueraded and seen.address == resolved.sender.address
                case Masqueraded():
                    right = seen.is_masqueraded
                case SourceAddress(address):
                    right = seen.address == address
                case NodeDevice(node, device):
                    family = Family.of(each.address)
                    right = seen.address == snat_source(plan, node, device, family, each.address)
            if not right:
                yield f"expected source {wanted} at {each.name}, oracle {seen} {answer.rows.get('source')}"
