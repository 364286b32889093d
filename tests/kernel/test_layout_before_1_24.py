"""Scenarios on embedded@v1.23: those about its own layout hold, and fail without the rules that they are about."""

from collections.abc import Iterator

import pytest
from mutated_labs import MutatedLabs, name_of
from sandboxed import ROOT

from proxylab.engines.embedded.mutation import ABSENT, Mutation
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

TO_ENDPOINT = "load balancer IP with policy Local reaches the endpoint of the node"
OF_POD = "load balancer IP with policy Local sends a pod to KUBE-SVC"
OF_NODE = "load balancer IP with policy Local sends a node by KUBE-MARK-MASQ to KUBE-SVC"
IN_INPUT = "NodePort with policy Local and no local endpoint drops in INPUT"
IN_OUTPUT = "load balancer IP with source ranges drops a node outside the range in OUTPUT"
ABSENT_RULES = {
    "nat KUBE-XLB-* -j KUBE-SEP-*": {TO_ENDPOINT},
    "nat KUBE-XLB-* -s NETWORK -j KUBE-SVC-* # Redirect pods trying to reach external loadbalancer VIP to clusterIP": {
        OF_POD
    },
    "nat KUBE-XLB-* --src-type LOCAL -j KUBE-SVC-* # route LOCAL traffic for SERVICE LB IP to service chain": {OF_NODE},
    "nat KUBE-XLB-* -j KUBE-MARK-DROP # SERVICE has no local endpoints": {IN_INPUT},
    "filter KUBE-FIREWALL --mark MARK/MARK -j DROP # kubernetes firewall for dropping marked packets": {
        IN_INPUT,
        IN_OUTPUT,
    },
}
"""Classes of rules, and what turns red without them."""


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedLabs]:
    made = MutatedLabs(tmp_path_factory.mktemp("labs"), "embedded@v1.23/iptables")
    yield made
    made.close()


@pytest.mark.parametrize("rule", ABSENT_RULES)
def test_without_a_rule_its_probes_turn_red(labs: MutatedLabs, rule: str) -> None:
    ((_, verdicts),) = labs.run([FILE], Mutation(rule, ABSENT))
    assert {name_of(each) for each in verdicts if each.overall is not Judgement.PASS} == ABSENT_RULES[rule]


def test_what_differs_by_version_holds(labs: MutatedLabs) -> None:
    judged = {(path.name, name_of(each)): each.overall for path, every in labs.run(HOLDING, None) for each in every}
    assert len(judged) > 20
    assert {case: overall for case, overall in judged.items() if overall is not Judgement.PASS} == {}
