"""Nodes that get other addresses in steps, or whose Node objects go: the plan and the cluster then."""

from ipaddress import ip_address
from typing import Final

import pytest

from proxylab.cluster.configuration import Mode
from proxylab.errors import ScenarioError
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask, moment_of
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.renumbering import moves_of
from proxylab.scenario.load import parse_scenario

FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: renumbered}
spec:
  network: {families: [IPv4, IPv6], interNode: host-gw}
  nodes: {node-a: {addresses: [172.18.9.9/16]}, node-b: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080], hostNetwork: true}
    far: {nodes: [node-b], labels: {app: far}, ports: [8080]}
  hosts: {outside: {}}
  loadBalancers: {edge: {pool: [192.0.2.0/28]}}
  probes:
  - name: first
    from: outside
    to: {service: far, via: nodePort, node: node-a}
    expect: {outcome: delivered, source: masqueraded}
  steps:
  - name: node-a moves
    change: {nodes: {node-a: {internalIPs: [NEW]}}}
    probes:
    - name: second
      from: outside
      to: {service: far, via: nodePort, node: node-a}
      expect: {outcome: delivered, source: masqueraded}
  - name: its Node object goes, and it moves again
    change: {nodes: {node-a: null}}
  - name: its Node object is back
    change: {nodes: {node-a: {present: true}}}
  - name: it moves back
    change: {nodes: {node-a: {internalIPs: [172.18.0.2]}}}
---
apiVersion: v1
kind: Service
metadata: {name: far}
spec: {type: NodePort, selector: {app: far}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
OLD, NEW, SIX = ip_address("172.18.0.2"), ip_address("172.18.0.77"), ip_address("fd00:172:18::2")


def laid_out(file: str = FILE, new: str = "172.18.0.77") -> Assembly:
    return assemble(parse_scenario(file.replace("NEW", new), "renumbered.lab.yaml"))


@pytest.fixture(scope="module")
def assembly() -> Assembly:
    fixed = "node-a: {internalIPs: [172.18.0.2], addresses"
    return laid_out(FILE.replace("node-a: {addresses", fixed))


@pytest.mark.parametrize(("made", "own"), [(0, OLD), (1, NEW), (2, NEW), (3, NEW), (4, OLD)])
def test_all_machines_know_a_node_by_the_address_that_it_has_then(assembly: Assembly, made: int, own: object) -> None:
    plan = assembly.plan_after(made)
    addresses = [
        each.interface.ip for each in plan.namespace("node-a").addresses if not each.interface.ip.is_link_local
    ]
    assert addresses[:3] == [own, SIX, ip_address("172.18.9.9")]
    gone = OLD if own is NEW else NEW
    routed = {each.via for namespace in plan.namespaces for each in namespace.routes}
    assert own in routed
    assert gone not in routed
    hops = {hop.via for each in plan.namespace("router").routes for hop in each.hops}
    assert own in hops
    assert gone not in hops
    assert plan.balancers[0].nodes["node-a"] == (own, SIX)
    assert next(each for each in plan.pods if each.name == "echo").addresses == (own, SIX)


@pytest.mark.parametrize(
    ("made", "own"), [(0, (OLD, SIX)), (1, (NEW, SIX)), (2, None), (3, (NEW, SIX)), (4, (OLD, SIX))]
)
def test_the_node_object_shows_the_addresses_of_its_machine(assembly: Assembly, made: int, own: object) -> None:
    moment = assembly.timeline[made]
    node = moment.nodes.get("node-a")
    assert (node and node.addresses) == own
    assert moment.pods["echo"].addresses == moment.machines["node-a"].addresses


def test_probes_dial_and_expect_the_address_that_the_node_has_then(assembly: Assembly) -> None:
    first, second = assembly.resolved_probes
    assert (first.destination, second.destination) == (OLD, NEW)
    assert [each.source for each in first.masquerades] == [OLD]
    assert [each.source for each in second.masquerades] == [NEW]
    moment = moment_of(assembly, 1, Mode.NFTABLES, (1, 37))
    probe = assembly.scenario.steps[0].probes[0]
    assert [end.name for _, answer in ask(assembly, probe, moment, Oracle(moment)).flows for end in answer.reached] == [
        "far"
    ]


def test_an_address_comes_in_place_of_the_one_of_its_family() -> None:
    assert moves_of([OLD, ip_address("172.18.9.9"), SIX], [NEW]) == {OLD: NEW}
    assert moves_of([OLD, SIX], [OLD]) == {}
    assert moves_of([OLD], [SIX]) == {}


@pytest.mark.parametrize("new", ["10.9.9.9", "172.18.0.1", "172.18.9.9"])
def test_a_node_gets_no_address_of_others_nor_of_another_network(new: str) -> None:
    with pytest.raises(ScenarioError, match=new.replace(".", r"\.")):
        laid_out(new=new)


def test_the_lab_gives_no_machine_an_address_that_a_node_gets_later() -> None:
    assert laid_out(new="172.18.0.2").plan.namespace("node-a").addresses[0].interface.ip == ip_address("172.18.0.3")


def test_tunnels_end_at_the_address_that_the_node_has_then() -> None:
    plan = laid_out(FILE.replace("host-gw", "vxlan")).plan_after(1)
    assert [each.local for each in plan.namespace("node-a").vxlans] == [NEW]
    assert [each.remote for each in plan.namespace("node-b").forwarding] == [NEW]
