"""A scenario laid out: plan, objects, resolved probes and sources belong together."""

from ipaddress import IPv4Address

import pytest
from msgspec.structs import replace
from scenario_cases import ECHO, at, frontend, probe, two_nodes

from proxylab.cluster.objects import EndpointSlice, Namespace, Node, Pod, Service, ServiceCIDR
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.scenario.expect import NodeDevice, Preserved, SourceAddress, SourceExpectation

INSIDE = probe("inside", "sender", frontend(), source=Preserved())
OUTSIDE = probe("outside", "client", frontend(), source=NodeDevice("node-a", "uplink"))


def test_objects_are_what_an_api_server_would_hold() -> None:
    assembly = assemble(two_nodes())
    kinds = [type(thing) for thing in assembly.objects]
    cluster = [Namespace, Namespace, ServiceCIDR]
    assert kinds == [*cluster, Node, Node, Pod, Pod, Pod, Pod, Service, EndpointSlice]
    first, pod = assembly.objects[3], assembly.objects[6]
    assert isinstance(first, Node)
    assert isinstance(pod, Pod)
    assert [str(value) for value in (*first.addresses, *first.pod_cidrs)] == ["172.18.0.2", "10.244.0.0/24"]
    assert (pod.name, pod.node_name, str(pod.addresses[0]), pod.labels) == (
        "echo-2",
        "node-b",
        "10.244.1.10",
        {"app": "echo"},
    )


def test_endpoints_are_the_pods_addresses_in_the_plan() -> None:
    assembly = assemble(two_nodes())
    planned = {str(assembly.plan.namespace(f"echo-{number}").addresses[0].interface.ip) for number in (1, 2, 3)}
    piece = next(thing for thing in assembly.objects if isinstance(thing, EndpointSlice))
    assert {str(endpoint.addresses[0]) for endpoint in piece.endpoints} == planned


def test_errands_dial_what_was_allocated() -> None:
    assembly = assemble(two_nodes(INSIDE, OUTSIDE))
    service = next(thing for thing in assembly.objects if isinstance(thing, Service))
    assert [resolved.destination for resolved in assembly.resolved_probes] == [service.cluster_ips[0]] * 2
    assert assembly.resolved(OUTSIDE).name == "outside"
    assert assembly.resolved(OUTSIDE).number == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, None),
        (Preserved(), None),
        (SourceAddress(IPv4Address("192.0.2.9")), "192.0.2.9"),
        (NodeDevice("node-b", "uplink"), "172.18.0.3"),
        (NodeDevice("node-b", "pods"), "10.244.1.1"),
    ],
)
def test_expected_source(source: SourceExpectation | None, expected: str | None) -> None:
    asked = probe("p", "client", frontend(), source=source)
    found = assemble(two_nodes(asked)).expected_source(asked)
    assert (None if found is None else str(found)) == expected


def test_source_that_is_not_there_is_named_at_its_key() -> None:
    asked = probe("p", "client", frontend(), source=NodeDevice("node-c", "uplink"), positions={"source": at(12, 9)})
    with pytest.raises(
        ScenarioError, match=r"case\.lab\.yaml:12:9: probe 'p': expect\.source: there is no node 'node-c'"
    ):
        assemble(two_nodes(asked))


def test_allocation_problems_name_the_file() -> None:
    taken = replace(ECHO, cluster_ips=(IPv4Address("192.0.2.1"),))
    with pytest.raises(ScenarioError, match=r"^case\.lab\.yaml: Service default/echo: spec\.clusterIPs\[0\]"):
        assemble(replace(two_nodes(), services=(taken,)))


def test_same_scenario_same_assembly() -> None:
    assert assemble(two_nodes(INSIDE, OUTSIDE)) == assemble(two_nodes(INSIDE, OUTSIDE))
