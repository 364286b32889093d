"""Which endpoints count, case by case."""

from ipaddress import ip_address

import pytest

from proxylab.addresses import Protocol
from proxylab.cluster.objects import ObjectKey
from proxylab.engines.embedded.categories import TrafficRefusal, categorize_endpoints, ports_without_local
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo

NODE = NodeFacts(name="node-a", zone="blue")
PORT = ServicePortInfo(
    service=ObjectKey("Service", "default", "echo"),
    name="default/echo",
    protocol=Protocol.TCP,
    cluster_ip=ip_address("10.96.0.20"),
    port=80,
)
INTERNAL_LOCAL = PORT._replace(internal_policy_local=True)
EXTERNAL_LOCAL = PORT._replace(external_policy_local=True, node_port=30080)


def endpoint(name: str, state: str = "ready", **fields: object) -> EndpointInfo:
    plain = EndpointInfo(
        address=ip_address("10.42.0.10"),
        ip="10.42.0.10",
        port=8080,
        name=name,
        is_local=name.startswith("here"),
        ready=state == "ready",
        serving=state in {"ready", "draining"},
        terminating=state in {"draining", "dying"},
    )
    return plain._replace(**fields)


def categorized(
    port: ServicePortInfo, *endpoints: EndpointInfo, node: NodeFacts = NODE
) -> tuple[str, str, str, TrafficRefusal | None, TrafficRefusal | None]:
    found = categorize_endpoints(port._replace(endpoints=endpoints), node)
    names = [" ".join(e.name for e in group) for group in (found.cluster, found.local, found.reachable)]
    assert found.has_endpoints == (found.internal is not TrafficRefusal.REJECT)
    return (*names, found.internal, found.external)


HERE, THERE = endpoint("here"), endpoint("there")
REJECT, DROP = TrafficRefusal.REJECT, TrafficRefusal.DROP


@pytest.mark.parametrize("port", [PORT, INTERNAL_LOCAL, EXTERNAL_LOCAL])
def test_without_endpoints_everything_is_rejected(port: ServicePortInfo) -> None:
    assert categorized(port) == ("", "", "", REJECT, REJECT)
    assert categorized(port, endpoint("here", "unready"), endpoint("there", "dying")) == ("", "", "", REJECT, REJECT)


def test_policies() -> None:
    assert categorized(PORT, HERE, THERE) == ("here there", "", "here there", None, None)
    assert categorized(INTERNAL_LOCAL, HERE, THERE) == ("", "here", "here", None, None)
    assert categorized(EXTERNAL_LOCAL, HERE, THERE) == ("here there", "here", "here there", None, None)


def test_none_on_this_node() -> None:
    assert categorized(INTERNAL_LOCAL, THERE) == ("", "", "", DROP, None)
    assert categorized(EXTERNAL_LOCAL, THERE) == ("there", "", "there", None, DROP)


def test_terminating_endpoints_are_the_last_resort() -> None:
    draining = endpoint("there-draining", "draining")
    assert categorized(PORT, HERE, draining)[0] == "here"
    assert categorized(PORT, endpoint("here", "unready"), draining)[0] == "there-draining"
    assert categorized(EXTERNAL_LOCAL, HERE, endpoint("here-draining", "draining"))[1] == "here"


def test_an_endpoint_that_serves_is_usable_only_if_it_is_ready_or_terminates() -> None:
    serving = endpoint("here", "unready", serving=True)
    assert categorized(EXTERNAL_LOCAL, serving) == ("", "", "", REJECT, REJECT)


def test_local_and_cluster_fall_back_each_for_itself() -> None:
    draining = endpoint("here-draining", "draining")
    assert categorized(EXTERNAL_LOCAL, draining, THERE) == (
        "there",
        "here-draining",
        "here-draining there",
        None,
        None,
    )


def test_draining_elsewhere_still_makes_it_a_drop() -> None:
    assert categorized(INTERNAL_LOCAL, endpoint("there", "draining")) == ("", "", "", DROP, None)


def blue(name: str, **fields: object) -> EndpointInfo:
    return endpoint(name, for_zones=("blue",), **fields)


def green(name: str, **fields: object) -> EndpointInfo:
    return endpoint(name, for_zones=("green",), **fields)


def test_zone_hints() -> None:
    assert categorized(PORT, blue("a"), green("b"))[0] == "a"


@pytest.mark.parametrize(
    "endpoints",
    [(blue("a"), endpoint("b")), (green("a"), green("b"))],
    ids=["one has no hint", "no hint for this zone"],
)
def test_incomplete_hints_are_ignored(endpoints: tuple[EndpointInfo, ...]) -> None:
    assert categorized(PORT, *endpoints)[0] == "a b"


def test_hints_need_a_zone() -> None:
    zoneless = NodeFacts(name="node-a")
    assert categorized(PORT, blue("a"), green("b"), node=zoneless)[0] == "a b"
    assert categorized(PORT, endpoint("a", for_zones=("",)), green("b"), node=zoneless)[0] == "a b"


def test_hints_of_endpoints_that_are_not_ready_do_not_matter() -> None:
    assert categorized(PORT, blue("a"), green("b"), endpoint("c", "unready"))[0] == "a"
    assert categorized(PORT, blue("a", ready=False, terminating=True), green("b"))[0] == "b"


def test_node_hints_come_before_zone_hints() -> None:
    mine, other = blue("a", for_nodes=("node-a",)), blue("b", for_nodes=("node-b",))
    assert categorized(PORT, mine, other)[0] == "a"
    assert categorized(PORT, mine, blue("b"))[0] == "a b"
    assert categorized(PORT, blue("a", for_nodes=("node-c",)), other)[0] == "a b"


def test_hints_never_narrow_local() -> None:
    found = categorized(EXTERNAL_LOCAL, green("here"), blue("there"))
    assert found[:3] == ("there", "here", "here there")
    assert categorized(EXTERNAL_LOCAL, green("here"), blue("here-too"))[1] == "here here-too"


def test_the_ports_that_drop_are_counted_by_frontend() -> None:
    inside, outside = (port._replace(endpoints=(THERE,)) for port in (INTERNAL_LOCAL, EXTERNAL_LOCAL))
    internal_only = PORT._replace(external_policy_local=True, endpoints=(THERE,))
    assert ports_without_local((inside, inside, outside, internal_only), NODE) == (2, 1)
    assert ports_without_local((INTERNAL_LOCAL, EXTERNAL_LOCAL, PORT), NODE) == (0, 0), "these reject"
