"""Probes of a lab in which people have made pods and Services since it began are resolved as the API has these now."""

from ipaddress import ip_address, ip_network

import pytest
from scenario_cases import host, node, pods, probe, scenario

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import KubeObject, Pod, Service, ServicePort
from proxylab.cluster.slices import derive_slices
from proxylab.errors import ScenarioError
from proxylab.plan.added_pod import Additions, addresses_of, with_added
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.present import at_present
from proxylab.scenario.probes import PodTarget, ServiceTarget
from proxylab.scenario.words import Frontend

NEW = Service(
    namespace="team",
    name="shop",
    selector={"app": "shop"},
    ports=(ServicePort(port=80, target_port=9090),),
    cluster_ips=(ip_address("10.96.0.77"),),
    ip_families=(Family.IPV4,),
)


def now() -> Assembly:
    """A lab that began with one pod and a Service; the pod is gone, and namespace team has a Service and two pods."""
    began = scenario(
        [node("node-a"), node("node-b")], [pods("echo", "node-a"), pods("client", "node-b")], [host("out")]
    )
    stands = assemble(began)
    networks = {f"node-{each}": (ip_network(f"10.244.{number}.0/24"),) for number, each in enumerate("ab")}
    adds = Additions(stands.plan, began.network.families, networks)
    added = [adds.add("team", name, "node-a", [(Protocol.TCP, 9090)]) for name in ("client", "web")]
    there = [each for each in stands.objects if not (isinstance(each, Pod) and each.name == "echo")]
    new = [
        Pod(namespace="team", name=name, labels={"app": "shop"}, node_name="node-a", addresses=addresses_of(each))
        for name, each in zip(("client", "web"), added, strict=True)
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


def test_a_new_pod_sends_and_is_dialled_on_its_only_port() -> None:
    asked = probe("asked", "client.team", PodTarget(pod="web"))
    found = now().with_probes([asked]).resolved(asked)
    assert (found.sender.namespace, str(found.sender.address)) == ("client.team", "10.244.0.2")
    assert (str(found.destination), found.port) == ("10.244.0.3", 9090)


def test_what_the_cluster_does_not_have_now_is_refused() -> None:
    asked = probe("asked", "client", ServiceTarget(service="gone", via=Frontend.CLUSTER_IP))
    with pytest.raises(ScenarioError, match="there is no Service default/gone"):
        now().with_probes([asked])
