"""What an audit asks: every frontend from every kind of sender, and what lies beside."""

from collections import Counter

import pytest

from proxylab.cluster.objects import EndpointSlice
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.questions import Asker, AuditQuestion
from proxylab.features.audit.senders import SenderKind, senders_of, with_senders
from proxylab.oracle.promised import with_promises
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.host_ports import host_ports
from proxylab.scenario.cases import cases
from proxylab.scenario.load import holds_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.words import Manner, Outcome

NEWEST = (1, 37)
MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  externalIPs: [198.51.100.7]
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.8}]}}
---
apiVersion: v1
kind: Service
metadata: {name: whole, namespace: shop}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: sctp}
spec: {selector: {app: none}, ports: [{port: 9, protocol: SCTP}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
"""


def asker_of(scenario: Scenario) -> tuple[Asker, Assembly]:
    assembly = assemble(scenario)
    cluster = assembly.timeline[0]
    return (
        Asker(
            services=cluster.services,
            slices=[each for each in cluster.objects if isinstance(each, EndpointSlice)],
            plan=assembly.plan,
            senders=senders_of(scenario, assembly.plan),
            families=scenario.network.families,
            service_networks=scenario.network.service_cidrs,
            host_ports=host_ports(assembly.plan, cluster.pods.values(), cluster.nodes.values()),
            file="shop.yaml",
        ),
        assembly,
    )


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    (case,) = cases(scenario_of_manifests(MANIFESTS, "shop.yaml"), "iptables", NEWEST)
    return with_senders(case)


@pytest.fixture(scope="module")
def questions(scenario: Scenario) -> list[AuditQuestion]:
    return list(asker_of(scenario)[0].questions())


def kinds_at(questions: list[AuditQuestion], frontend: str) -> Counter[SenderKind]:
    return Counter(each.kind for each in questions if each.service == "default/web" and frontend in each.frontend)


INSIDE = {
    SenderKind.NEAR: 1,
    SenderKind.FAR: 1,
    SenderKind.ENDPOINT: 1,
    SenderKind.HOST_POD: 1,
    SenderKind.NODE: 2,
    SenderKind.OUTSIDE: 3,
}


def test_every_frontend_is_asked_from_every_kind_of_sender(questions: list[AuditQuestion]) -> None:
    for frontend in ("clusterIP", "externalIP", "loadBalancerIP"):
        assert kinds_at(questions, frontend) == INSIDE
    further = {SenderKind.LOOPBACK: 1, SenderKind.NEIGHBOUR: 1}
    assert kinds_at(questions, "nodePort 30080") == {**INSIDE, **further}
    assert kinds_at(questions, "healthCheckNodePort") == {SenderKind.OUTSIDE: 3}


def test_what_lies_beside_is_asked_from_a_pod_and_a_node(questions: list[AuditQuestion]) -> None:
    beside = {SenderKind.NEAR: 1, SenderKind.NODE: 1}
    assert kinds_at(questions, "unused port") == beside
    assert kinds_at(questions, "echo request") == beside
    unassigned = [each for each in questions if not each.service]
    assert Counter(each.kind for each in unassigned) == beside
    assert all("unassigned address 10.96." in each.frontend for each in unassigned)


def test_a_host_port_is_asked_from_each_kind_of_sender_that_can_reach_it() -> None:
    ports = "ports: [{containerPort: 8080, hostPort: 80}, {containerPort: 8081, hostPort: 81, hostIP: 127.0.0.1}]"
    text = MANIFESTS.replace("ports: [{containerPort: 8080}]", ports).replace("replicas: 2", "replicas: 1")
    (case,) = cases(scenario_of_manifests(text, "shop.yaml"), "iptables", NEWEST)
    asked = [each for each in asker_of(with_senders(case))[0].questions() if "hostPort" in each.frontend]
    at_80 = Counter(each.kind for each in asked if "hostPort 80/" in each.frontend)
    assert at_80 == {SenderKind.NODE: 1, SenderKind.NEAR: 1, SenderKind.FAR: 1, SenderKind.OUTSIDE: 1}
    assert Counter(each.kind for each in asked if "hostPort 81/" in each.frontend) == {SenderKind.NODE: 1}


def test_a_service_without_a_frontend_is_told_and_not_asked(scenario: Scenario, questions: list[AuditQuestion]) -> None:
    assert asker_of(scenario)[0].undialled == {
        "shop/whole": "a headless Service has no frontend: clients dial its pods"
    }
    assert "shop/whole" not in {each.service for each in questions}


def test_each_question_is_a_probe_with_a_name_of_its_own_and_no_expectation(questions: list[AuditQuestion]) -> None:
    assert len({each.probe.name for each in questions}) == len(questions)
    assert {each.probe.expect.also for each in questions} == {"promises"}
    assert not [each.probe.name for each in questions if "/" in each.probe.name or "::" in each.probe.name]


def test_so_many_flows_leave_as_reach_every_endpoint(questions: list[AuditQuestion]) -> None:
    sent = {each.probe.send.flows for each in questions if each.frontend.startswith("clusterIP")}
    assert sent == {31, 1}  # two endpoints, and the Service without one
    by_sctp = [each.probe.send for each in questions if "SCTP" in each.frontend]
    assert {each.manner for each in by_sctp} == {Manner.PACKET}


def test_the_promises_say_what_must_become_of_every_question(
    scenario: Scenario, questions: list[AuditQuestion]
) -> None:
    _, assembly = asker_of(scenario)
    asked = assembly.with_probes([each.probe for each in questions]).scenario
    for mode in ("iptables", "nftables", "ipvs"):
        probes = with_promises(asked, mode, NEWEST).all_probes
        assert [(each.name, each.expect.undecided) for each in probes if each.expect.undecided] == []
        outcomes = Counter(each.expect.outcome for each in probes)
        assert outcomes[Outcome.DELIVERED] > outcomes[Outcome.DROPPED] > 0
        assert outcomes[Outcome.REJECTED] > 0


def test_the_senders_that_an_audit_adds_have_names_of_their_own(scenario: Scenario) -> None:
    again = with_senders(scenario)
    names = [name for group in again.pods for name in group.pod_names] + [each.name for each in again.hosts]
    assert len(names) == len(set(names))
    assert {"audit-node-a", "audit-node-a-2", "audit-host-node-a", "audit-outside-2"} <= {*names}


def test_a_lab_without_further_senders_is_asked_from_those_that_it_has() -> None:
    (bare,) = cases(scenario_of_manifests(MANIFESTS, "shop.yaml"), "iptables", NEWEST)
    asker, assembly = asker_of(bare)
    senders = senders_of(bare, assembly.plan)
    assert senders.missing == (SenderKind.HOST_POD, SenderKind.OUTSIDE, SenderKind.NEIGHBOUR)
    kinds = {each.kind for each in asker.questions()}
    assert kinds == {*SenderKind} - {SenderKind.HOST_POD, SenderKind.OUTSIDE, SenderKind.NEIGHBOUR}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("kind: Scenario\n", True),
        ("apiVersion: v1\nkind: 'Scenario'  # ours\n", True),
        ("kind: Service\nmetadata: {name: Scenario}\n", False),
        ("data:\n  kind: Scenario of old\n", False),
    ],
)
def test_a_scenario_is_told_from_manifests(text: str, is_one: bool) -> None:
    assert holds_scenario(text) is is_one
