"""Each of upstream's end-to-end tests has what shows the same here, or the reason why nothing does."""

import ast

import pytest
from e2e_reference import UpstreamTest, upstream_tests
from scenario_index import SCENARIOS, SUFFIX

from proxylab.scenario.load import load_scenario

FILES = {
    "service.go": 51,
    "networking.go": 27,
    "dual_stack.go": 23,
    "conntrack.go": 7,
    "kube_proxy.go": 2,
    "loadbalancer.go": 17,
    "traffic_distribution.go": 6,
    "topology_hints.go": 1,
    "no_snat.go": 1,
    "hostport.go": 1,
    "service_cidrs.go": 3,
    "localhost_nodeports.go": 3,
    "endpointslice.go": 5,
    "endpointslicemirroring.go": 2,
    "endpoints.go": 3,
    "service_latency.go": 1,
    "pod_lifecycle.go": 3,
    "dns.go": 18,
}
"""How many tests each of upstream's files has in 1.37.2, counted in its source."""

TESTS = [(f"{file}: {name}", test) for file, tests in upstream_tests().items() for name, test in tests.items()]
SHOWN = sorted({shown for _, test in TESTS for shown in test.shown})


def test_every_test_of_upstream_has_a_row() -> None:
    assert {file: len(tests) for file, tests in upstream_tests().items()} == FILES


@pytest.mark.parametrize(("name", "test"), TESTS, ids=[name for name, _ in TESTS])
def test_a_row_says_what_shows_it_or_why_nothing_does(name: str, test: UpstreamTest) -> None:
    assert bool(test.shown) != bool(test.absent), f"{name}: either shown or absent"
    assert not (test.absent and test.partly), f"{name}: nothing is shown, so no part is"


@pytest.mark.parametrize("shown", SHOWN)
def test_what_shows_it_exists_and_is_judged(shown: str) -> None:
    place, _, title = shown.partition("::")
    if place.endswith(".py"):
        tree = ast.parse((SCENARIOS / place).read_text(encoding="utf-8"))
        assert title in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        return
    scenario = load_scenario(SCENARIOS / f"{place}{SUFFIX}")
    judged = {probe.name for probe in scenario.probes}
    for step in scenario.steps:
        judged |= {probe.name for probe in step.probes}
        if step.probes or step.expect:
            judged.add(step.name)
    assert judged
    assert not title or title in judged
