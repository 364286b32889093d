"""The core shows each promise in each mode that the scenarios show there.

In mode iptables all scenarios run, and in mode nftables the core. It runs in mode userspace where an engine or a
scenario changed; else the scenarios of what that mode does by itself. Mode ipvs needs a guest: ``./dev test`` runs the
sets that ``tests/kernel/test_scenarios_in_a_guest.py`` names, which have every kind of frontend, sender and change, and
``--all`` runs all scenarios.
"""

from collections.abc import Sequence

import pytest
from scenario_index import SCENARIOS, SUFFIX, places

from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

TAGS = {"nftables": {"core"}, "userspace": {"core", "userspace"}}
SHARES_TAKE_LONG = "the same rules share a cluster IP out, and the scenario of node ports takes half a minute"
SHOWN_ELSEWHERE = {
    "externalTrafficPolicy=Local/nodePort/outside/local-endpoint/spread": SHARES_TAKE_LONG,
    "ports.nodePort/spread": SHARES_TAKE_LONG,
}
"""What mode iptables shows in ``./dev test``, and each mode with ``--all``."""


def shown(scenario: Scenario, mode: str) -> set[str]:
    """The promises that the probes of a scenario show in a mode."""
    return {
        promise
        for case in cases(scenario, mode)
        for probe in (*case.probes, *(each for step in case.steps for each in step.probes))
        for promise in probe.expect.proves
    }


@pytest.fixture(scope="module")
def catalogue() -> Sequence[Scenario]:
    return [load_scenario(SCENARIOS / f"{place}{SUFFIX}") for place in places()]


@pytest.mark.parametrize("mode", TAGS)
def test_the_core_shows_each_promise(mode: str, catalogue: Sequence[Scenario]) -> None:
    everything, core = set[str](), set[str]()
    for scenario in catalogue:
        promises = shown(scenario, mode)
        everything |= promises
        if TAGS[mode] & {*scenario.tags}:
            core |= promises
    assert len(everything) > 200
    assert everything - core == {*SHOWN_ELSEWHERE}
