"""A segment outside its window must not end the connection of its 5-tuple.

https://github.com/kubernetes/kubernetes/issues/74839: after a retransmission, a segment of a server was outside the
window that connection tracking expected. Connection tracking called it invalid and did not translate it back, so the
client received it from the pod's address. The client had no such connection and sent a reset, which ended the good
connection at the pod.
"""

from pathlib import Path

import pytest

from proxylab.engines.engine_names import mode_of
from proxylab.plan.dialogue import client, server
from proxylab.pytest_plugin import Lab, LabFactory

pytestmark = pytest.mark.core

SCENARIO = Path(__file__).with_name("74839-segment-out-of-window.lab.yaml")
TO_THE_SERVICE = {"service": "echo", "via": "clusterIP"}
FAMILIES = ("IPv4", "IPv6")  # each family has its own rules and connection tracking
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
    if mode_of(lab_engine) == "ipvs":  # IPVS translates every segment of a connection back, invalid or not
        (greeting,), (stray,) = spoken.arrived("client", 2), spoken.arrived("client", STRAY)
        assert stray.source == greeting.source, f"the stray segment was not translated back\n{spoken}"
        assert not spoken.resets("echo"), f"the good connection was reset\n{spoken}"
        return
    if mode_of(lab_engine) == "nftables":  # a limit: kube-proxy 1.36 has no rule for it in mode nftables
        assert spoken.arrived("client", STRAY), f"mode nftables drops the stray segment now: update this test\n{spoken}"
        return
    assert not spoken.arrived("client", STRAY), f"the stray segment reached the client\n{spoken}"
    assert not spoken.resets("echo"), f"the good connection was reset\n{spoken}"
    assert spoken.packets_counted_by("--ctstate INVALID") == 1, f"no rule dropped the stray segment\n{spoken}"
    assert [each.data for each in spoken.arrived("echo", LATER)] == ["still here"]
    assert [each.data for each in spoken.arrived("client")] == ["", "so am I"]


def test_a_liberal_kernel_translates_the_stray_segment_and_needs_no_rule(lab_factory: LabFactory) -> None:
    lab = lab_factory(SCENARIO.read_text() + LIBERAL)
    spoken = lab.dialogue("client", "echo", TURNS, to=TO_THE_SERVICE)
    (stray,) = spoken.arrived("client", STRAY)
    (greeting,) = spoken.arrived("client", 2)
    assert (stray.source, stray.source_port) == (greeting.source, 80), (
        f"the stray segment was not translated back\n{spoken}"
    )
    assert spoken.packets_counted_by("--ctstate INVALID") == 0
    assert not spoken.resets("echo")
