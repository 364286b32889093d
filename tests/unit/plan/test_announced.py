"""Load-balancer addresses in the nodes' segment: where packets for them enter, whichever node announces them."""

from ipaddress import ip_address
from typing import Final

import pytest

from proxylab.cluster.configuration import Mode
from proxylab.errors import ScenarioError
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask, moment_of, outside_reach
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.forwarding import UnreachableError, next_hop, path
from proxylab.plan.print import plan_lines
from proxylab.plan.topology import draw
from proxylab.scenario.load import parse_scenario

FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: announced}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    other: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
  hosts: {outside: {}, neighbour: {segment: nodes}}
  loadBalancers: {segment: {pool: [172.18.255.0/28, "fd00:172:18::ff00/120"], announcedBy: node-a}}
  probes:
  - {name: first, from: outside, to: {service: echo, via: loadBalancerIP}, expect: {also: promises}}
  steps:
  - name: moved
    change: {loadBalancers: {segment: {announcedBy: node-b}}}
    probes: [{name: second, from: neighbour, to: {service: echo, via: loadBalancerIP}, expect: {also: promises}}]
  - name: moved unheard
    change: {loadBalancers: {segment: {announcedBy: node-a, gratuitousARP: lost}}}
    probes: [{name: third, from: outside, to: {service: echo, via: loadBalancerIP}, expect: {also: promises}}]
  - name: moved and heard again
    change: {loadBalancers: {segment: {announcedBy: node-b}}}
    probes: [{name: fourth, from: outside, to: {service: echo, via: loadBalancerIP}, expect: {also: promises}}]
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
FOUR, SIX = ip_address("172.18.255.1"), ip_address("fd00:172:18::ff01")


@pytest.fixture(scope="module")
def assembly() -> Assembly:
    return assemble(parse_scenario(FILE, "announced.lab.yaml"))


def entered(assembly: Assembly, number: int) -> tuple[str, ...]:
    """The pods that the oracle names for the probe with that number, or why it names none."""
    probe = assembly.scenario.all_probes[number]
    if why := outside_reach(assembly, probe, (1, 37)):
        return (why,)
    moment = moment_of(assembly, assembly.scenario.steps_before(probe), Mode.IPTABLES, (1, 37))
    return tuple(end.name for _, answer in ask(assembly, probe, moment, Oracle(moment)).flows for end in answer.reached)


def test_the_router_has_no_route_to_an_announced_pool(assembly: Assembly) -> None:
    routes = assembly.plan.namespace("router").routes
    assert not [each for each in routes if FOUR in each.destination or SIX in each.destination if each.via]
    lines = plan_lines(assembly.plan)
    assert "balancer segment: 172.18.255.0/28, fd00:172:18::ff00/120 announced by node-a" in lines


@pytest.mark.parametrize("address", [FOUR, SIX])
@pytest.mark.parametrize(("made", "node"), [(0, "node-a"), (1, "node-b"), (2, "node-b"), (3, "node-b")])
def test_frames_go_to_the_node_that_neighbours_know(assembly: Assembly, made: int, node: str, address: object) -> None:
    plan = assembly.plan_after(made)
    for sender in ("router", "neighbour"):
        assert next_hop(plan, sender, address).into.namespace == node  # type: ignore[arg-type]
    with pytest.raises(UnreachableError):
        path(plan, node, address)  # type: ignore[arg-type]


def test_a_probe_is_framed_for_the_node_that_announces_at_its_time(assembly: Assembly) -> None:
    second = assembly.resolved(assembly.scenario.all_probes[1])
    assert second.sender.next_hop_mac == assembly.plan.end("node-b", "eth0").mac
    assert [each.name for each in second.sentinels if each.name.startswith("node")] == ["node-b"]
    first = assembly.resolved(assembly.scenario.all_probes[0])
    assert [each.name for each in first.sentinels if each.name.startswith("node")] == ["node-a"]
    assert first.policy_route is None


def test_the_oracle_follows_what_neighbours_hear(assembly: Assembly) -> None:
    assert [entered(assembly, number) for number in range(4)] == [
        ("echo",),
        ("other",),
        ("neighbours may still know the node that announced the address before",),
        ("other",),
    ]


def test_a_probe_that_names_another_node_is_refused() -> None:
    named = FILE.replace("first, from: outside, to: {", "first, from: outside, to: {node: node-b, ")
    with pytest.raises(ScenarioError) as raised:
        assemble(parse_scenario(named, "f"))
    assert raised.value.problems == (
        "f:13:5: probe 'first': to.node: packets for 172.18.255.1 enter at node-a, which announces it; leave it out",
    )


def test_no_machine_has_an_address_of_an_announced_pool() -> None:
    for taken, owner in (("172.18.255.3", "node-a's"), ("172.18.255.4", "node-b's")):
        has = FILE.replace("node-a: {}", "node-a: {addresses: [172.18.255.3/16]}").replace(
            "node-b: {}", "node-b: {internalIPs: [172.18.255.4]}"
        )
        with pytest.raises(ScenarioError) as raised:
            draw(parse_scenario(has, "f"))
        assert any(taken in each and owner in each and "choose another pool" in each for each in raised.value.problems)
