"""Who is parted by links that are cut."""

from proxylab.plan.assembly import assemble
from proxylab.plan.outages import Links
from proxylab.scenario.cases import cases
from proxylab.scenario.change import LinkChange
from proxylab.scenario.load import parse_scenario

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: reach}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    one: {nodes: [node-a]}
    two: {nodes: [node-a]}
    three: {nodes: [node-b]}
    own: {nodes: [node-b], hostNetwork: true, ports: [8080]}
  hosts: {outside: {}}
  probes: [{name: p, from: one, to: {pod: own}, expect: {outcome: delivered, source: preserved}}]
"""
(SCENARIO,) = cases(parse_scenario(TEXT, "f"), "iptables")
PLAN = assemble(SCENARIO).plan
PLACES = ("node-a", "node-b", "one", "two", "three", "own", "outside")


def parted(cut: str, one: str) -> set[str]:
    links = Links().after([LinkChange(netns_name=cut, device="eth0", up=False)])
    return {other for other in PLACES if other != one and links.part(PLAN, one, other)}


def test_without_a_cut_link_all_machines_are_connected() -> None:
    assert not any(Links().part(PLAN, "one", other) for other in PLACES)


def test_a_pod_is_parted_from_all() -> None:
    assert parted("one", "one") == set(PLACES) - {"one"}
    assert parted("one", "three") == {"one"}


def test_a_node_is_parted_with_its_pods() -> None:
    assert parted("node-a", "one") == {"node-b", "three", "own", "outside"}
    assert parted("node-b", "one") == {"node-b", "three", "own"}
    assert parted("node-b", "three") == {"node-a", "one", "two", "outside"}


def test_a_mended_link_separates_no_machines() -> None:
    cut = Links().after([LinkChange(netns_name="one", device="eth0", up=False)])
    assert cut.after([LinkChange(netns_name="one", device="eth0", up=True)]) == Links()
