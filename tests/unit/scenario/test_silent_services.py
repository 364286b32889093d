"""``check`` warns of Services behind which nothing answers; pods without ``containerPort`` listen where they must."""

import pytest
from broken_scenarios import BASE
from golden_words import Told

from proxylab.addresses import Protocol
from proxylab.errors import ScenarioError
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.pods import ListeningPort

REJECTED = BASE.replace("{outcome: delivered, source: preserved}", "{outcome: rejected}")


def warnings(text: str) -> list[str]:
    return [each for each in parse_scenario(text, "f").notes if each.startswith("warning: ")]


def test_a_sound_scenario_has_no_warning() -> None:
    assert warnings(BASE.replace("  - port: 80", "  - {port: 80, targetPort: 8080}")) == []


def test_a_selector_that_matches_no_pod(told: Told) -> None:
    assert warnings(BASE.replace("labels: {app: echo}", "labels: {app: ecko}")) == told()


def test_the_pods_may_be_in_another_namespace() -> None:
    (warning,) = warnings(BASE.replace("echo: {replicas", "echo: {namespace: shop, replicas"))
    assert warning.endswith("matches no pod; pods with these labels are in namespace shop")


def test_a_target_port_on_which_no_pod_listens(told: Told) -> None:
    (warning,) = warnings(BASE)
    assert warning == told()


def test_silence_that_a_probe_expects_is_no_reason_to_warn() -> None:
    assert warnings(REJECTED.replace("labels: {app: echo}", "labels: {app: ecko}")) == []


def test_a_step_may_bring_the_label() -> None:
    steps = "  steps:\n  - {name: the label comes, change: {pods: {client: {labels: {app: echo}}}}}\n---\n"
    without = BASE.replace("labels: {app: echo}", "labels: {app: ecko}")
    listening = without.replace("client: {}", "client: {ports: [80]}").replace("---\n", steps, 1)
    assert warnings(listening) == []


DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template: {metadata: {labels: {app: echo}}, spec: {containers: [{name: web, image: a}]}}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: lone, labels: {app: echo}}
spec: {containers: [{name: web, image: a}]}
"""
SERVED = BASE.replace("    echo: {replicas: 2, labels: {app: echo}, ports: [8080]}\n", "")


def listening(text: str) -> set[ListeningPort]:
    scenario: Scenario = parse_scenario(text, "f")
    return {port for pod in scenario.pods for port in pod.ports if pod.name != "client"}


@pytest.mark.parametrize("manifest", [DEPLOYMENT, POD], ids=["Deployment", "Pod"])
def test_without_a_container_port_pods_listen_on_the_numeric_target_ports(manifest: str) -> None:
    ports = "  - {name: a, port: 80, targetPort: 3000}\n  - {name: b, port: 53, protocol: UDP}\n"
    text = SERVED.replace("  - port: 80\n", ports).replace("via: clusterIP", "port: a, via: clusterIP") + manifest
    assert listening(text) == {
        ListeningPort(port=3000, protocol=Protocol.TCP),
        ListeningPort(port=53, protocol=Protocol.UDP),
    }
    (note,) = parse_scenario(text, "f").notes
    assert "declares no port: in the lab it listens where Services send to, TCP port 3000 (Service echo)" in note


@pytest.mark.parametrize("manifest", [DEPLOYMENT, POD], ids=["Deployment", "Pod"])
def test_a_declared_port_or_a_named_target_port_is_as_it_is_written(manifest: str) -> None:
    declared = manifest.replace("image: a", "image: a, ports: [{containerPort: 9}]")
    assert listening(SERVED + declared) == {ListeningPort(port=9)}
    named = SERVED.replace("  - port: 80\n", "  - {port: 80, targetPort: http}\n")
    assert listening(named + manifest) == set()


@pytest.mark.parametrize(
    ("routes", "refused"),
    [
        (
            "{to: default, device: eth0, via: 172.18.0.3}, {to: 0.0.0.0/0, device: eth0, via: 172.18.0.4}",
            "a route to 0.0.0.0/0 through eth0",
        ),
        (
            "{to: 192.0.2.0/24, device: eth0, via: 172.18.0.3}, {to: 192.0.2.0/24, device: eth0, via: 172.18.0.4}",
            "a route to 192.0.2.0/24 through eth0",
        ),
    ],
)
def test_a_second_route_to_one_destination_is_a_mistake_with_its_line(routes: str, refused: str) -> None:
    text = BASE.replace("node-a: {}", f"node-a: {{routes: [{routes}]}}").replace(
        "spec:\n", "spec:\n  network: {families: [IPv4, IPv6]}\n", 1
    )
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "f")
    (problem,) = caught.value.problems
    assert problem.startswith("f:7:")
    assert f"the node has {refused} already; add from, which makes it a policy route" in problem


def test_a_policy_route_may_be_a_default_route() -> None:
    routes = "{to: default, device: eth0, via: 172.18.0.1, from: 10.244.0.0/24}"
    assert parse_scenario(BASE.replace("node-a: {}", f"node-a: {{routes: [{routes}]}}"), "f").nodes[0].routes
