"""What the engine's mode cannot show is skipped without a lab, and without a step."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from proxylab.client.scenario_run import Run, ScenarioRuns
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.oracle.promised import promised_cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import Judgement, ProbeVerdict

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
USERSPACE = EngineChoice("embedded/userspace")


def case_of(name: str, mode: str) -> Scenario:
    return promised_cases(load_scenario(SCENARIOS / f"{name}.lab.yaml"), mode, (1, 25))[0]


def reasons(name: str, engine: EngineChoice) -> Mapping[str, str]:
    """Why each probe and step that needs no lab is skipped, by its name."""
    case, session = case_of(name, engine.name.rpartition("/")[2]), Session(engine, seed=7)
    found = {each.name: session.unshown(case, each) for each in case.judged}
    known = {name: verdict for name, verdict in found.items() if verdict is not None}
    assert {each.overall for each in known.values()} <= {Judgement.SKIP}
    assert all(each.options[-2:] == ("--seed", "7") for each in known.values())
    return {name: each.verdicts[0].reasons[0] for name, each in known.items()}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("affinity/timeout-counts-from-the-last-connection", "a single crafted SYN opens none"),
        ("steps/metric-of-services-without-local-endpoint", "exports no metric"),
        ("steps/udp-client-outlives-its-backend", "preserves the client's address"),
    ],
)
def test_a_scenario_of_which_the_mode_shows_nothing_needs_no_lab(name: str, why: str) -> None:
    found = reasons(name, USERSPACE)
    assert found.keys() == {each.name for each in case_of(name, "userspace").judged}
    assert any(why in each for each in found.values())
    assert reasons(name, EngineChoice("embedded/iptables")) == {}


def test_what_the_mode_shows_a_part_of_needs_one() -> None:
    assert reasons("userspace/udp-client-keeps-its-endpoint", USERSPACE) == {}
    assert {each[-6:] for each in reasons("userspace/large-data", USERSPACE)} == {"[ipv6]"}


class WithoutLabs(Session):
    """A session on a machine that can build none."""

    def open(self, *_: object, **__: object) -> NoReturn:
        raise CapabilityError("network namespaces", "use Linux")


@pytest.mark.parametrize("name", ["affinity/timeout-counts-from-the-last-connection", "dns/cluster-ip-by-name"])
def test_a_run_builds_a_lab_for_the_first_probe_that_needs_one(name: str) -> None:
    case, session = case_of(name, "userspace"), WithoutLabs(USERSPACE)
    run = Run(engine=session.engine.name, kernel="host", scenario=case, chosen=case.judged)
    result = ScenarioRuns(lambda _engine: session).result(run, lambda _what: None, lambda _note: None)
    needs_none = [each.name for each in case.judged if session.unshown(case, each)]
    assert [each.written.name for each in result.judged] == needs_none[: len(result.judged)]
    assert (result.skipped is None) is (len(needs_none) == len(case.judged))


def test_the_verdict_names_every_expectation_and_says_that_nothing_was_sent() -> None:
    name = "affinity/timeout-counts-from-the-last-connection"
    case = case_of(name, "userspace")
    verdict = Session(USERSPACE).unshown(case, case.probes[0])
    assert isinstance(verdict, ProbeVerdict)
    assert {each.observed for each in verdict.verdicts} == {"not sent"}
    assert verdict.evidence.sent == 0


def test_what_the_mode_lacks_for_the_whole_scenario_is_said_first() -> None:
    case = case_of("steps/endpoints-move", "userspace")
    with pytest.raises(CapabilityError, match="health-check node ports"):
        Session(USERSPACE).unshown(case, case.judged[0])
