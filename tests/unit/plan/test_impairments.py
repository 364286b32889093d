"""Links with netem in a plan: their middles, the neighbours around them, and the ways through them."""

import pytest

from proxylab.plan.assembly import assemble
from proxylab.plan.device_names import FABRIC
from proxylab.plan.impairments import ways, without_netem
from proxylab.plan.model import Plan
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.network import Netem

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: links}}
spec:
  network:
    families: [IPv4, IPv6]
    podNetwork: {pods}
    segments: {{storage: {{cidr: [172.19.0.0/16, 'fd00:19::/64']}}}}
  nodes: {{node-a: {{uplinks: {{eth1: {{segment: storage{storage}}}}}}}, node-b: {{{node}}}}}
  pods: {{echo: {{replicas: 2, nodes: [node-a], ports: [8080]{pod}}}, client: {{nodes: [node-b]}}}}
  hosts: {{outside: {{}}}}
  probes:
  - {{name: p, from: client, to: {{pod: echo-1, family: IPv4}}, expect: {{outcome: delivered, source: preserved}}}}
  streams: {{s: {{from: client, to: {{pod: echo-1}}}}}}
  steps: [{{name: one, change: {{links: {{{links}}}}}, expect: {{s: {{lost: 0}}}}}}]
"""


def plan(pods: str = "ptp", **parts: str) -> Plan:
    text = TEXT.format(pods=pods, **{"storage": "", "node": "", "pod": "", "links": "", **parts})
    (case,) = cases(parse_scenario(text, "f"), "iptables")
    return assemble(case).plan


def with_middles(drawn: Plan) -> dict[str, Netem | None]:
    return {
        f"{link.second.namespace}/{link.second.device}": link.middle.netem
        for link in drawn.links
        if link.middle is not None
    }


def test_only_links_with_netem_have_a_middle() -> None:
    assert with_middles(plan()) == {}
    loss = Netem(loss=10.0)
    assert with_middles(plan(node="netem: {loss: 10%}")) == {"node-b/eth0": loss}
    assert with_middles(plan(pod=", netem: {loss: 10%}")) == {"echo-1/eth0": loss, "echo-2/eth0": loss}
    assert with_middles(plan(storage=", netem: {loss: 10%}")) == {"node-a/eth1": loss}


def test_a_link_that_a_step_gives_netem_has_a_middle_from_the_beginning() -> None:
    assert with_middles(plan(links="client: {delay: 5ms}, node-b: cut")) == {"client/eth0": None}


def test_without_netem_a_plan_is_the_plain_one_but_for_neighbours() -> None:
    drawn, plain = without_netem(plan(node="netem: {loss: 10%}")), plan()
    assert [link.ends for link in drawn.links] == [link.ends for link in plain.links]
    assert drawn.namespace(FABRIC) == plain.namespace(FABRIC)


@pytest.mark.parametrize("pods", ["ptp", "ptp-unnumbered", "bridge"])
def test_both_sides_of_a_link_with_netem_know_each_other_s_addresses(pods: str) -> None:
    drawn = plan(pods, node="netem: {loss: 10%}", pod=", netem: {loss: 10%}")
    for name, gateway_of in (("node-b", "router"), ("echo-1", "node-a")):
        inner = drawn.namespace(name)
        known = {(each.device, each.address) for each in inner.neighbours}
        for route in inner.routes:
            if route.via is not None and route.device == "eth0":
                assert ("eth0", route.via) in known, f"{name} knows {gateway_of} as {route.via}"
        own = {each.interface.ip for each in inner.addresses if each.device == "eth0"}
        assert own <= {each.address for each in drawn.namespace(gateway_of).neighbours}


def test_a_packet_from_any_machine_on_a_segment_may_come_into_a_node_s_link() -> None:
    out, to_node = ways(plan(node="netem: {loss: 10%}"))
    assert (out.link, out.outward, out.behind) == ("node-b", True, ("node-b/eth0",))
    assert (to_node.link, to_node.outward) == ("node-b", False)
    assert {"node-a/eth0", "outside/eth0"} <= set(to_node.behind)
    assert "echo-1/eth0" not in to_node.behind


def test_only_its_node_sends_into_a_pod_s_link() -> None:
    assert [way.behind for way in ways(plan(links="client: {delay: 5ms}"))] == [("client/eth0",), ("node-b/client",)]
