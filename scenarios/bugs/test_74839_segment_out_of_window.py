"""A segment out of its window must not end the connection it strays into.

https://github.com/kubernetes/kubernetes/issues/74839: after a retransmission a server's segment was out of the window
that connection tracking knew. It was called invalid, was not translated back, and reached the client from the address
of the pod. The client knew no such connection and reset it, at the pod, where it was a good one.
"""

from pathlib import Path

import pytest

from lab.engines.names import mode_of
from lab.plan.dialogue import client, server
from lab.pytest_plugin import Lab, LabFactory

SCENARIO = Path(__file__).with_name("74839-segment-out-of-window.lab.yaml")
TO_THE_SERVICE = {"service": "echo", "via": "clusterIP"}
FAMILIES = ("IPv4", "IPv6")  # each has tables, rules and connection tracking of its own
LIBERAL = """
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {tcpBeLiberal: true}
"""

FAR = 10_000_000
STRAY, LATER = 4, 5
TURNS = (
    client("SYN"),
    server("SYN ACK"),
    client("ACK"),
    server("ACK", "a segment that strays", ahead=FAR),
    client("PSH ACK", "still here"),
    server("PSH ACK", "so am I"),
)


@pytest.mark.lab(SCENARIO.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stray_segment_is_dropped_and_the_connection_lives(lab: Lab, lab_engine: str, family: str) -> None:
    spoken = lab.dialogue("client", "echo", TURNS, to={**TO_THE_SERVICE, "family": family})
    if mode_of(lab_engine) == "nftables":  # a limit: kube-proxy 1.36 has no rule against invalid packets in that mode
        assert spoken.arrived("client", STRAY), f"mode nftables has learnt to drop it: say so here\n{spoken}"
        return
    assert not spoken.arrived("client", STRAY), f"the stray segment reached the client\n{spoken}"
    assert not spoken.resets("echo"), f"the good connection was reset\n{spoken}"
    assert spoken.rules("--ctstate INVALID") == 1, f"no rule dropped it\n{spoken}"
    assert [each.data for each in spoken.arrived("echo", LATER)] == ["still here"]
    assert [each.data for each in spoken.arrived("client")] == ["", "so am I"]


def test_a_liberal_kernel_translates_it_and_needs_no_rule(lab_factory: LabFactory) -> None:
    lab = lab_factory(SCENARIO.read_text() + LIBERAL)
    spoken = lab.dialogue("client", "echo", TURNS, to=TO_THE_SERVICE)
    (stray,) = spoken.arrived("client", STRAY)
    (greeting,) = spoken.arrived("client", 2)
    assert (stray.source, stray.source_port) == (greeting.source, 80), f"it was not translated back\n{spoken}"
    assert spoken.rules("--ctstate INVALID") == 0
    assert not spoken.resets("echo")
