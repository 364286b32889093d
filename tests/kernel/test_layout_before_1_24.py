"""Scenarios on embedded@v1.23: those about its own layout hold, and fail without the rules that they are about."""

from collections.abc import Iterator

import pytest
from mutated_labs import MutatedLabs, name_of
from mutation import Mutation
from sandboxed import ROOT

from proxylab.verdict.model import Judgement

SCENARIOS = ROOT / "scenarios"
FILE = SCENARIOS / "loadbalancer/kube-xlb-and-kube-mark-drop.lab.yaml"
HOLDING = (
    FILE,
    SCENARIOS / "externalip/hijacked-address.lab.yaml",
    SCENARIOS / "health/healthz-of-a-node-being-removed.lab.yaml",
    SCENARIOS / "loadbalancer/health-check-on-node-port-addresses.lab.yaml",
    SCENARIOS / "loadbalancer/source-ranges-of-several-addresses.lab.yaml",
    SCENARIOS / "loadbalancer/what-a-health-check-says.lab.yaml",
    SCENARIOS / "nodeport/localhost-node-ports-off.lab.yaml",
    SCENARIOS / "nodeport/masquerade-address-by-network.lab.yaml",
    SCENARIOS / "rejections/no-local-endpoint-or-no-endpoint.lab.yaml",
    SCENARIOS / "senders/from-loopback.lab.yaml",
    SCENARIOS / "steps/healthz-follows-node-removal.lab.yaml",
    SCENARIOS / "steps/load-balancer-settings-change.lab.yaml",
)
"""Each of them expects something else of versions before 1.24, 1.26, 1.28, 1.30 or 1.36."""

LEGACY = "proxylab.engines.embedded.iptables.legacy"
TO_ENDPOINT = "load balancer IP with policy Local reaches the endpoint of the node"
OF_POD = "load balancer IP with policy Local sends a pod to KUBE-SVC"
OF_NODE = "load balancer IP with policy Local sends a node by KUBE-MARK-MASQ to KUBE-SVC"
IN_INPUT = "NodePort with policy Local and no local endpoint drops in INPUT"
IN_OUTPUT = "load balancer IP with source ranges drops a node outside the range in OUTPUT"
BREAKAGES = {
    "KUBE-XLB is empty": ("_external_local", "lambda *each: iter(())", {TO_ENDPOINT, OF_POD, OF_NODE, IN_INPUT}),
    "nothing drops marked packets": ("_of_kubelet", "lambda family: ()", {IN_INPUT, IN_OUTPUT}),
}


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedLabs]:
    made = MutatedLabs(tmp_path_factory.mktemp("labs"), "embedded@v1.23/iptables")
    yield made
    made.close()


@pytest.mark.parametrize(("attribute", "becomes", "red"), BREAKAGES.values(), ids=BREAKAGES)
def test_without_a_rule_its_probes_turn_red(labs: MutatedLabs, attribute: str, becomes: str, red: set[str]) -> None:
    ((_, verdicts),) = labs.run([FILE], Mutation(LEGACY, attribute, becomes))
    assert {name_of(each) for each in verdicts if each.overall is not Judgement.PASS} == red


def test_what_differs_by_version_holds(labs: MutatedLabs) -> None:
    judged = {(path.name, name_of(each)): each.overall for path, every in labs.run(HOLDING, None) for each in every}
    assert len(judged) > 20
    assert {case: overall for case, overall in judged.items() if overall is not Judgement.PASS} == {}
