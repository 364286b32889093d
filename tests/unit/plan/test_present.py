"""Probes of a lab in which people have made pods and Services since it began are resolved as the API has these now."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace
from scenario_cases import host, node, pods, probe, scenario

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import KubeObject, Node, Pod, Service, ServicePort
from proxylab.cluster.slices import derive_slices
from proxylab.errors import ScenarioError
from proxylab.plan.added_pod import Additions, addresses_of, with_added
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.present import at_present, with_probe
from proxylab.scenario.expect import Backend
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.probes import PodTarget, Probe, ServiceTarget
from proxylab.scenario.words import Frontend

NEW = Service(
    namespace="team",
    name="shop",
    selector={"app": "shop"},
    ports=(ServicePort(port=80, target_port=9090),),
    cluster_ips=(ip_address("10.96.0.77"),),
    ip_families=(Family.IPV4,),
)


def now(labels: Mapping[str, str] | None = None, web: str = "web") -> Assembly:
    """A lab that began with one pod and a Service; the pod is gone, and namespace team has a Service and two pods.

    The second of them, called ``web``, has further ``labels``.
    """
    began = scenario(
        [node("node-a"), node("node-b")], [pods("echo", "node-a"), pods("client", "node-b")], [host("out")]
    )
    stands = assemble(began)
    networks = {f"node-{each}": (ip_network(f"10.244.{number}.0/24"),) for number, each in enumerate("ab")}
    adds = Additions(stands.plan, began.network.families, networks)
    added = [adds.add("team", name, "node-a", [(Protocol.TCP, 9090)]) for name in ("client", web)]
    there = [each for each in stands.objects if not (isinstance(each, Pod) and each.name == "echo")]
    new = [
        Pod(namespace="team", name=name, labels=own, node_name="node-a", addresses=addresses_of(each))
        for name, own, each in zip(
            ("client", web), ({"app": "shop"}, {"app": "shop", **(labels or {})}), added, strict=True
        )
    ]
    objects: list[KubeObject] = [*there, *new, NEW, *derive_slices([NEW], new, [])]
    return at_present(stands, 0, with_added(stands.plan, added), objects)


def test_a_new_service_leads_to_the_pods_that_it_has_now() -> None:
    asked = probe("asked", "client", ServiceTarget(service="shop", namespace="team", via=Frontend.CLUSTER_IP))
    found = now().with_probes([asked]).resolved(asked)
    assert (found.destination, found.port) == (ip_address("10.96.0.77"), 80)
    assert {(str(each.address), each.port) for each in found.endpoints} == {("10.244.0.2", 9090), ("10.244.0.3", 9090)}
    assert {"client", "client.team", "web"} <= {each.name for each in found.receivers}
    assert {"client.team", "web"} <= {each.name for each in found.sentinels}
    assert "echo" not in {each.name for each in found.sentinels}, "it is gone"


def test_a_pod_that_is_gone_is_known_as_that() -> None:
    assert {each.name: each.present for each in now().scenario.pods} == {
        "echo": False,
        "client": True,
        "client.team": True,
        "web": True,
    }


def test_a_new_pod_sends_and_is_dialled_on_its_only_port() -> None:
    asked = probe("asked", "client.team", PodTarget(pod="web"))
    found = now().with_probes([asked]).resolved(asked)
    assert (found.sender.namespace, str(found.sender.address)) == ("client.team", "10.244.0.2")
    assert (str(found.destination), found.port) == ("10.244.0.3", 9090)


def test_what_the_cluster_does_not_have_now_is_refused() -> None:
    asked = probe("asked", "client", ServiceTarget(service="gone", via=Frontend.CLUSTER_IP))
    with pytest.raises(ScenarioError, match="there is no Service default/gone"):
        now().with_probes([asked])


def test_pods_on_the_host_network_are_told_apart_by_their_names_and_ports() -> None:
    """Two pods of one name in two namespaces, on one node; each has the node's address and a port of its own."""
    stands = assemble(scenario([node("node-a"), node("node-b")], [pods("client", "node-b")], []))
    adds = Additions(stands.plan, stands.scenario.network.families, {})
    addresses = next(each.addresses for each in stands.objects if isinstance(each, Node) and each.name == "node-a")
    added = [
        adds.add_on_host(namespace, "agent", "node-a", addresses, [(Protocol.TCP, port)])
        for namespace, port in (("team", 9100), ("default", 9200))
    ]
    new = [
        Pod(namespace=each, name="agent", node_name="node-a", addresses=addresses, host_network=True)
        for each in ("default", "team")
    ]
    found = at_present(stands, 0, with_added(stands.plan, added), [*stands.objects, *new])
    keys = {name: pod.namespace for name, pod in found.timeline[-1].pods.items() if pod.name == "agent"}
    assert keys == {"agent": "team", "agent.default": "default"}
    for name, port in (("agent", 9100), ("agent.default", 9200)):
        asked = probe("asked", "client", PodTarget(pod=name))
        resolved = found.with_probes([asked]).resolved(asked)
        assert (resolved.destination, resolved.port) == (addresses[0], port)


def test_the_name_of_a_workload_stands_for_the_pods_that_it_has_now() -> None:
    asked = probe("asked", "client", ServiceTarget(service="shop", namespace="team", via=Frontend.CLUSTER_IP))
    found, sent = with_probe(now({"pod-template-hash": "5d4"}, "shop-5d4-x7k2p"), asking_for(asked, "team/shop"))
    assert sent.expect.backend_names == ("shop-5d4-x7k2p",)
    assert found.resolved(sent).destination == ip_address("10.96.0.77")
    _, sent = with_probe(now({"controller-revision-hash": "shop-5d4"}, "shop-0"), asking_for(asked, "team/shop"))
    assert sent.expect.backend_names == ("shop-0",)
    _, sent = with_probe(now({}, "shop-0"), asking_for(asked, "team/shop"))
    assert sent.expect.backend_names == ("team/shop",)


def asking_for(asked: Probe, backend: str) -> Probe:
    return replace(asked, expect=replace(asked.expect, backends=(Backend(name=backend),)))


def test_what_follows_kubectl_is_known_in_the_lab_alone() -> None:
    step = "{name: more, change: {kubectl: [scale, deploy/web, --replicas=5]}, probes: [PROBE]}"
    expect = "{outcome: delivered, source: preserved, backends: [NAME]}"
    own = f"{{name: NAME, from: client, to: {{service: NAME, via: clusterIP}}, expect: {expect}}}"
    text = STEPS.replace("STEP", step.replace("PROBE", own.replace("NAME", "new"))).replace("OWN", own)
    read = parse_scenario(text.replace("NAME", "web"), "f")
    (before,), (after,) = read.probes, read.steps[0].probes
    assert (read.foretold, read.foretells(before), read.foretells(after)) == (0, True, False)
    whole = assemble(read)
    assert whole.resolved(before).destination
    with pytest.raises(ScenarioError, match="kubectl changes the cluster before it, so only its lab knows"):
        whole.resolved(after)
    assert after.expect.backend_names == ("new",), "no name is read as of before"


def test_a_deadline_alone_is_that_of_what_follows_kubectl() -> None:
    step = "{name: more, change: CHANGE, until: {within: 4m}}".replace("4m", "240s")
    text = STEPS.replace("OWN", "")
    kubectl = parse_scenario(text.replace("STEP", step.replace("CHANGE", "{kubectl: [get, pods]}")), "f").steps[0].until
    assert kubectl is not None
    assert (kubectl.within, kubectl.has_conditions) == (240_000, False)
    with pytest.raises(ScenarioError, match="waits for nothing; remove it, or add a condition"):
        parse_scenario(text.replace("STEP", step.replace("CHANGE", "{pods: {web: {ready: false}}}")), "f")
    rest = step.replace("CHANGE", "{kubectl: [get, pods]}").replace("within: 240s", "elapsed: 1s")
    other = parse_scenario(text.replace("STEP", rest), "f").steps[0].until
    assert other is not None
    assert other.has_conditions


STEPS = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: s}
spec:
  nodes: {node-a: {}}
  pods: {client: {}, web: {labels: {app: web}, ports: [80]}}
  probes: [OWN]
  steps: [STEP]
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
"""
