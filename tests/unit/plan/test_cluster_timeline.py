"""The API server's objects after each step, and the probes that are sent then."""

import pytest
from golden_words import Told

from proxylab.cluster.objects import EndpointSlice, Node, ObjectKey, Service
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario

HEAD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: course}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - name: first
    from: client
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, source: preserved}
  steps:
"""
TAIL = """\
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
PROBE = "from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}"
ECHO = ObjectKey("Service", "default", "echo")


def after(*changes: str) -> Assembly:
    steps = "".join(
        f"  - {{name: step {number}, change: {change}, probes: [{{name: again, {PROBE}}}]}}\n"
        for number, change in enumerate(changes, 1)
    )
    (scenario,) = cases(parse_scenario(HEAD + steps + TAIL, "f"), "iptables")
    return assemble(scenario)


def endpoints(assembly: Assembly, step: int) -> dict[str, bool]:
    slices = (thing for thing in assembly.timeline[step].objects if isinstance(thing, EndpointSlice))
    return {endpoint.target: endpoint.ready for each in slices for endpoint in each.endpoints}


def service(assembly: Assembly, step: int) -> Service:
    (found,) = (thing for thing in assembly.timeline[step].services if thing.key == ECHO)
    return found


def test_slices_follow_the_pods() -> None:
    assembly = after(
        "{pods: {echo-1: null}}",
        "{pods: {echo-2: {ready: false}}}",
        "{pods: {echo-1: {present: true}, echo-2: {labels: {app: null}}}}",
    )
    assert [endpoints(assembly, step) for step in range(4)] == [
        {"echo-1": True, "echo-2": True},
        {"echo-2": True},
        {"echo-2": False},
        {"echo-1": True},
    ]


def test_a_pod_that_comes_back_is_as_it_was_declared() -> None:
    assembly = after("{pods: {echo-1: {ready: false}}}", "{pods: {echo-1: null}}", "{pods: {echo-1: {present: true}}}")
    assert endpoints(assembly, 3) == {"echo-1": True, "echo-2": True}


def test_a_service_keeps_what_was_allocated_and_gets_what_it_needs() -> None:
    assembly = after("{services: {echo: {spec: {type: NodePort}}}}", "{services: {echo: {spec: {type: ClusterIP}}}}")
    assert {service(assembly, step).cluster_ips for step in range(3)} == {service(assembly, 0).cluster_ips}
    assert [bool(service(assembly, step).ports[0].node_port) for step in range(3)] == [False, True, False]


def test_a_service_that_is_added_takes_nothing_from_those_that_stand() -> None:
    assembly = after("{services: {aaa: {spec: {ports: [{port: 80}]}}}}")
    assert service(assembly, 1) == service(assembly, 0)
    first, second = (each.cluster_ips for each in assembly.timeline[1].services)
    assert first != second


def test_what_cannot_be_allocated_is_told_of_the_step(told: Told) -> None:
    with pytest.raises(ScenarioError) as caught:
        after("{services: {aaa: {spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}}}}")
    assert caught.value.problems == told()


def test_nodes_are_labelled_and_leave_and_come_back() -> None:
    assembly = after(
        "{nodes: {node-b: {labels: {zone: b}}}}", "{nodes: {node-b: null}}", "{nodes: {node-b: {present: true}}}"
    )
    seen = [
        {thing.name: dict(thing.labels) for thing in assembly.timeline[step].objects if isinstance(thing, Node)}
        for step in range(4)
    ]
    assert [each.get("node-b") for each in seen] == [{}, {"zone": "b"}, None, {}]


def test_nodes_are_tainted_and_deleted_and_what_is_not_said_stays() -> None:
    assembly = after(
        "{nodes: {node-b: {taints: [a, b]}}}",
        "{nodes: {node-b: {terminating: true}}}",
        "{nodes: {node-b: {taints: [], labels: {zone: b}}}}",
    )
    nodes = [
        next(thing for thing in assembly.timeline[step].objects if isinstance(thing, Node) and thing.name == "node-b")
        for step in range(4)
    ]
    assert [each.taints for each in nodes] == [(), ("a", "b"), ("a", "b"), ()]
    assert [each.deleting for each in nodes] == [False, False, True, True]


def test_errands_are_numbered_through_and_named_by_their_step() -> None:
    assembly = after("{pods: {echo-1: null}}", "{pods: {echo-1: {present: true}}}")
    assert [(resolved.number, resolved.name) for resolved in assembly.resolved_probes] == [
        (0, "first"),
        (1, "step 1: again"),
        (2, "step 2: again"),
    ]
    probes = assembly.scenario.all_probes
    assert [assembly.scenario.steps_before(probe) for probe in probes] == [0, 1, 2]
    assert [assembly.resolved(probe).name for probe in probes] == [probe.name for probe in probes]


def test_no_sentinel_is_asked_of_a_pod_that_is_gone() -> None:
    assembly = after("{pods: {echo-1: null}}", "{pods: {echo-1: {present: true}}}")
    tested = [{sentinel.name for sentinel in resolved.sentinels} for resolved in assembly.resolved_probes]
    assert ["echo-1" in names for names in tested] == [True, False, True]
    assert all(
        any(receiver.name == "echo-1" for receiver in resolved.receivers) for resolved in assembly.resolved_probes
    )
