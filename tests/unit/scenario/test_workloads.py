"""EndpointSlices, Endpoints, Pods and Nodes beside a Scenario."""

from ipaddress import ip_address
from pathlib import Path

import pytest
from broken_scenarios import BASE, noted
from golden_words import Told

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Node
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble, lay_out
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.model import Scenario

SLICE = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: echo-abcde
  labels: {kubernetes.io/service-name: echo, endpointslice.kubernetes.io/managed-by: me}
addressType: IPv4
ports:
- {name: "", port: 8080, protocol: TCP, appProtocol: http}
endpoints:
- addresses: [10.244.0.10]
  conditions: {ready: true, serving: true, terminating: false}
  nodeName: node-a
  zone: zone-a
  hints: {forZones: [{name: zone-a}], forNodes: [{name: node-a}]}
  targetRef: {kind: Pod, name: echo-1, namespace: default, uid: 1}
- addresses: [10.244.0.11]
  conditions: {ready: false, terminating: true}
"""


def read(manifest: str) -> Scenario:
    return parse_scenario(f"{BASE}---\n{manifest}", "f")


def slices_of(scenario: Scenario) -> list[EndpointSlice]:
    return [each for each in assemble(scenario).objects if isinstance(each, EndpointSlice)]


def test_a_slice_as_kubectl_prints_it_replaces_the_derived_ones_of_its_service() -> None:
    scenario = read(SLICE)
    (slice_,) = slices_of(scenario)
    assert slice_.endpoints == (
        Endpoint(
            addresses=(ip_address("10.244.0.10"),),
            node_name="node-a",
            zone="zone-a",
            for_zones=("zone-a",),
            for_nodes=("node-a",),
            target="echo-1",
        ),
        Endpoint(addresses=(ip_address("10.244.0.11"),), ready=False, serving=False, terminating=True),
    )
    assert slice_.ports == (EndpointPort(protocol=Protocol.TCP, port=8080),)
    assert noted(scenario) == ("no effect on proxying: ports[].appProtocol",)


def test_the_slices_of_another_service_are_derived_as_ever() -> None:
    spec = "{selector: {app: echo}, ports: [{port: 80}]}"
    other = f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: other}}\nspec: {spec}\n"
    assert sorted(each.service for each in slices_of(read(SLICE + other))) == ["echo", "other"]


def test_a_spread_counts_the_endpoints_of_given_slices() -> None:
    text = f"{BASE}---\n{SLICE}".replace(
        "source: preserved}", "source: preserved, spread: even}\n    send: {flows: 941}"
    )
    with pytest.raises(ScenarioError, match="the number of backends is 1"):
        parse_scenario(text, "f")


def test_endpoints_are_mirrored_for_a_service_without_selector(told: Told) -> None:
    endpoints = (
        "apiVersion: v1\nkind: Endpoints\nmetadata: {name: echo}\n"
        "subsets:\n- addresses: [{ip: 203.0.113.10}, {ip: 'fd00::7'}]\n  notReadyAddresses: [{ip: 203.0.113.11}]\n"
        "  ports: [{port: 53, protocol: UDP}]\n"
    )
    scenario = parse_scenario(f"{BASE}---\n{endpoints}".replace("  selector: {app: echo}\n", ""), "f")
    four, six = scenario.slices
    assert [(str(each.addresses[0]), each.ready) for each in four.endpoints] == [
        ("203.0.113.10", True),
        ("203.0.113.11", False),
    ]
    assert (six.address_type, six.service, six.ports[0].port) == (Family.IPV6, "echo", 53)
    assert noted(scenario) == told()
    assert read(endpoints).slices == ()
    assert noted(read(endpoints)) == told()


@pytest.mark.parametrize(
    ("manifest", "note"),
    [
        (SLICE.replace("kubernetes.io/service-name: echo, ", ""), "has no label kubernetes.io/service-name"),
        (SLICE.replace("addressType: IPv4", "addressType: FQDN"), "holds host names, not addresses"),
        (
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n",
            "the API serves them, and they have no effect here: 1 Ingress.networking.k8s.io",
        ),
        ("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: b}\n", "ServiceCIDR 'b'"),
    ],
)
def test_what_has_no_effect_is_named(manifest: str, note: str) -> None:
    scenario = read(manifest)
    assert scenario.slices == ()
    assert any(note in each for each in scenario.notes)


def test_a_pod_is_an_entry_of_the_scenario() -> None:
    scenario = read(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: late, labels: {app: echo}, deletionTimestamp: now, uid: x}\n"
        "spec: {nodeName: node-b, restartPolicy: Always, containers: [{name: c, image: i, ports: [{name: http, "
        "containerPort: 8080}]}]}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'False'}]}\n"
    )
    pod = scenario.pods[-1]
    assert (pod.name, pod.nodes, pod.labels) == ("late", ("node-b",), {"app": "echo"})
    assert [(port.name, port.port) for port in pod.ports] == [("http", 8080)]
    assert (pod.ready, pod.is_serving, pod.terminating) == (False, False, True)
    assert pod.position.line == 28
    (slice_,) = slices_of(scenario)
    assert [(each.target, each.terminating) for each in slice_.endpoints][-1] == ("late", True)


def test_a_node_gives_labels_or_is_a_node_of_its_own() -> None:
    scenario = read(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {topology.kubernetes.io/zone: x}},"
        " status: {addresses: [{type: InternalIP, address: 172.18.0.77}, {type: Hostname, address: node-a}]}}\n"
        "- {apiVersion: v1, kind: Node, metadata: {name: node-c}, status: {addresses: "
        "[{type: Hostname, address: c}]}}\n"
    )
    assert [(node.name, dict(node.labels)) for node in scenario.nodes] == [
        ("node-a", {"topology.kubernetes.io/zone": "x"}),
        ("node-b", {}),
        ("node-c", {}),
    ]
    assert [str(each) for each in scenario.nodes[0].internal_ips] == ["172.18.0.77"]


@pytest.mark.parametrize("own", [False, True], ids=["a node of its own", "a node that spec.nodes has too"])
def test_a_node_that_is_about_to_go_is_so_in_the_cluster(own: bool) -> None:
    name = "node-a" if own else "node-c"
    scenario = read(
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, deletionTimestamp: '2026-01-01T00:00:00Z'}}\n"
        "spec: {podCIDR: 10.244.0.0/24, taints: [{key: ToBeDeletedByClusterAutoscaler, value: '1', effect: NoSchedule},"
        " {key: ToBeDeletedByClusterAutoscaler, effect: NoExecute}]}\n"
    )
    nodes = {each.name: each for each in lay_out(scenario).objects if isinstance(each, Node)}
    assert (nodes[name].taints, nodes[name].deleting) == (
        ("ToBeDeletedByClusterAutoscaler=1:NoSchedule", "ToBeDeletedByClusterAutoscaler:NoExecute"),
        True,
    )
    assert (nodes["node-b"].taints, nodes["node-b"].deleting) == ((), False)


def test_manifests_of_other_files_are_told_of_by_their_own_places(tmp_path: Path) -> None:
    head, _, service = BASE.partition("---\n")
    file = tmp_path / "a.lab.yaml"
    file.write_text(head.replace("spec:\n", "spec:\n  manifests: [more/echo.yaml]\n", 1))
    (tmp_path / "more").mkdir()
    more = tmp_path / "more" / "echo.yaml"
    more.write_text(service)
    assert [each.name for each in load_scenario(file).services] == ["echo"]
    more.write_text(service.replace("port: 80", "prt: 80") + "---\n" + head)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file)
    told = "\n".join(caught.value.problems)
    assert f"{more}:7:5: spec.ports[0].prt: unknown key" in told
    assert "a manifest file may not hold a Scenario; only manifests" in told


def pod_with(keys: str, of_container: str = "") -> Scenario:
    container = f"{{name: a, image: a, ports: [{{containerPort: 8080}}]{of_container}}}"
    return read(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: lone}}\nspec: {{containers: [{container}]{keys}}}\n")


@pytest.mark.parametrize(
    ("keys", "of_container", "said"),
    [
        (", dnsConfig: {nameservers: [192.0.2.1]}", "", "dnsConfig of Pod default/lone"),
        (", dnsPolicy: Default", "", "dnsPolicy Default of Pod default/lone"),
        (", initContainers: [{name: b, image: b}]", "", "initContainers of Pod default/lone"),
        (", initContainers: [{name: b}, {name: c}]", "", "initContainers of Pod default/lone"),
        (
            ", initContainers: [{name: b, restartPolicy: Always, comand: [a]}]",
            "",
            "initContainers[].comand of Pod default/lone: Kubernetes has no such key; did you mean command?",
        ),
        (
            ", hostNetwrok: true",
            "",
            "hostNetwrok of Pod default/lone: Kubernetes has no such key; did you mean hostNetwork?",
        ),
        (
            "",
            ", comand: [a]",
            "containers[].comand of Pod default/lone: Kubernetes has no such key; did you mean command?",
        ),
    ],
)
def test_keys_of_pods_without_the_effect_that_an_author_expects_are_noted(
    keys: str, of_container: str, said: str
) -> None:
    (note,) = noted(pod_with(keys, of_container))
    assert note.startswith(f"no effect: {said}")


def test_a_pod_listens_on_the_ports_of_its_sidecars_too() -> None:
    sidecar = "{name: b, restartPolicy: Always, ports: [{name: metrics, containerPort: 9100}]}"
    before = "{name: c, ports: [{containerPort: 9200}]}"
    scenario = pod_with(f", initContainers: [{sidecar}, {before}]")
    assert [(each.name, each.port) for each in scenario.pods[-1].ports] == [("metrics", 9100), ("", 8080)]
    assert len(noted(scenario)) == 1, "of the container that ends before the others start"


def test_a_host_port_counts_and_usual_keys_are_not_noted() -> None:
    usual = pod_with(", dnsPolicy: ClusterFirst, restartPolicy: Always, volumes: []", ", env: [], tty: true")
    assert noted(usual) == ()
    spec = "{containers: [{ports: [{containerPort: 1, hostPort: 2, hostIP: 172.18.0.2}]}]}"
    scenario = read(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: lone}}\nspec: {spec}\n")
    assert noted(scenario) == ()
    (port,) = next(pod for pod in scenario.pods if pod.name == "lone").ports
    assert (port.port, port.host_port, str(port.host_ip)) == (1, 2, "172.18.0.2")


def test_a_service_may_have_a_digit_first() -> None:
    scenario = parse_scenario(
        BASE.replace("metadata: {name: echo}", "metadata: {name: 1st}").replace("service: echo", "service: 1st"), "f"
    )
    assert [each.name for each in scenario.services] == ["1st"]
    assert "Service default/1st: Kubernetes allows a digit first since 1.36" in scenario.notes
