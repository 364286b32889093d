"""A node that meets one half of a connection drops it, unless its kernel is liberal about TCP.

https://github.com/kubernetes/kubernetes/issues/94861: the rule against invalid segments (74839) also drops the answers
of connections whose first half passes the node by. Since 1.29 it is left out where nf_conntrack_tcp_be_liberal is set.
"""

from pathlib import Path

import pytest

from lab.engines.names import mode_of
from lab.plan.dialogue import client, server
from lab.pytest_plugin import LabFactory

SCENARIO = Path(__file__).with_name("94861-asymmetric-routing.lab.yaml")
ANSWER = 2
FAMILIES = ("IPv4", "IPv6")  # each has rules and connection tracking of its own
TURNS = (client("SYN"), server("SYN ACK"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_half_alone_is_dropped(lab_factory: LabFactory, lab_engine: str, family: str) -> None:
    lab = lab_factory(SCENARIO.read_text().replace("tcpBeLiberal: true", "tcpBeLiberal: false"))
    # An echo reply without its request is invalid as well: no fence comes back to the client.
    spoken = lab.dialogue("outside", "echo", TURNS, to={"pod": "echo", "family": family}, unproven=[1])
    assert spoken.arrived("echo", 1), f"the first half does not pass that node\n{spoken}"
    if mode_of(lab_engine) == "nftables":  # kube-proxy 1.36 has no rule against invalid packets in that mode
        assert spoken.arrived("outside", ANSWER)
        return
    assert not spoken.arrived("outside", ANSWER), f"the answer came by node-a\n{spoken}"
    assert spoken.rules("--ctstate INVALID"), f"no rule dropped it\n{spoken}"


@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_liberal_kernel_there_is_no_such_rule(lab_factory: LabFactory, family: str) -> None:
    lab = lab_factory(SCENARIO.read_text())
    spoken = lab.dialogue("outside", "echo", TURNS, to={"pod": "echo", "family": family})
    assert spoken.arrived("outside", ANSWER), f"the answer did not come\n{spoken}"
    assert spoken.rules("--ctstate INVALID") == 0
