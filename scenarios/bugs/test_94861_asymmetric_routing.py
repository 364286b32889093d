"""A node that sees one direction of a connection drops it, unless nf_conntrack_tcp_be_liberal is set.

https://github.com/kubernetes/kubernetes/issues/94861: the rule against invalid segments (74839) also drops the answers
of connections whose requests take another route. Since 1.29 kube-proxy leaves the rule out where
nf_conntrack_tcp_be_liberal is set.
"""

from pathlib import Path

import pytest

from proxylab.engines.engine_names import mode_of, version_of
from proxylab.plan.dialogue import client, server
from proxylab.pytest_plugin import LabFactory

SCENARIO = Path(__file__).with_name("94861-asymmetric-routing.lab.yaml")
ANSWER = 2
FAMILIES = ("IPv4", "IPv6")  # each family has its own rules and connection tracking
TURNS = (client("SYN"), server("SYN ACK"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_that_sees_only_the_answers_drops_them(lab_factory: LabFactory, lab_engine: str, family: str) -> None:
    lab = lab_factory(SCENARIO.read_text().replace("tcpBeLiberal: true", "tcpBeLiberal: false"))
    # An echo reply without its request is invalid as well, so no sentinel packet comes back to the client.
    spoken = lab.dialogue("outside", "echo", TURNS, to={"pod": "echo", "family": family}, unproven=[1])
    assert spoken.arrived("echo", 1), f"the SYN did not reach the pod\n{spoken}"
    if mode_of(lab_engine) in ("nftables", "ipvs"):  # kube-proxy 1.36 has no rule there against invalid packets
        assert spoken.arrived("outside", ANSWER)
        return
    assert not spoken.arrived("outside", ANSWER), f"node-a forwarded the answer\n{spoken}"
    assert spoken.packets_counted_by("--ctstate INVALID"), f"no rule dropped the answer\n{spoken}"
    if mode_of(lab_engine) == "iptables" and version_of(lab_engine) >= (1, 31):
        dropped = {"name": "iptables_ct_state_invalid_dropped_packets_total", "node": "node-a", "value": {"atLeast": 1}}
        lab.step(
            "node-a counts the answer that it dropped",
            expect={"metrics": [dropped, {**dropped, "node": "node-b", "value": 0}]},
        )
        lab.conclude()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_liberal_kernel_has_no_rule_and_forwards_the_answers(lab_factory: LabFactory, family: str) -> None:
    lab = lab_factory(SCENARIO.read_text())
    spoken = lab.dialogue("outside", "echo", TURNS, to={"pod": "echo", "family": family})
    assert spoken.arrived("outside", ANSWER), f"the answer did not reach the client\n{spoken}"
    assert spoken.packets_counted_by("--ctstate INVALID") == 0
