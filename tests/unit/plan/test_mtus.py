"""The MTU of a pod's link and of a node's route, beside that of all links of a network."""

from typing import Final

import pytest

from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan
from proxylab.plan.print import plan_lines
from proxylab.plan.topology import draw
from proxylab.scenario.load import parse_scenario

FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: mtus}
spec:
  network: {podNetwork: NETWORK, mtu: {pods: 1450}}
  nodes: {node-a: {routes: [{to: 198.51.100.0/24, device: eth0, via: 172.18.0.1, mtu: 1400}]}}
  pods: {thin: {replicas: 2, mtu: 1300}, usual: {}}
"""


def drawn(network: str = "ptp", **others: str) -> Plan:
    text = FILE.replace("NETWORK", network)
    for former, new in others.items():
        text = text.replace(former, new)
    return draw(parse_scenario(text, "mtus.lab.yaml"))


@pytest.mark.parametrize("network", ["ptp", "ptp-unnumbered", "bridge"])
def test_both_ends_of_a_pods_link_have_its_mtu(network: str) -> None:
    plan = drawn(network)
    mtus = {name: {end.mtu for end in plan.link(name, "eth0").ends} for name in ("thin-1", "thin-2", "usual")}
    assert mtus == {"thin-1": {1300}, "thin-2": {1300}, "usual": {1450}}


def test_a_route_has_its_own_mtu() -> None:
    plan = drawn()
    routes = {str(each.destination): each.mtu for each in plan.namespace("node-a").routes}
    assert routes["198.51.100.0/24"] == 1400
    assert routes["0.0.0.0/0"] is None
    assert [line for line in plan_lines(plan) if "198.51.100.0/24" in line and "mtu 1400" in line]


def test_no_ipv6_fits_through_less() -> None:
    with pytest.raises(ScenarioError):
        drawn(**{"mtu: 1300": "mtu: 1200"})
