"""A segment outside its window ends the connection of a program on a node: a limit of upstream, in every mode.

https://github.com/kubernetes/kubernetes/issues/117924: the rule against 74839 is in FORWARD, and packets for the node
itself do not pass FORWARD. nf_conntrack_tcp_be_liberal avoids the reset: connection tracking then calls no segment
invalid.
"""

from pathlib import Path

import pytest

from proxylab.engines.engine_names import mode_of
from proxylab.plan.dialogue import client, server
from proxylab.pytest_plugin import Lab, LabFactory

pytestmark = pytest.mark.core

SCENARIO = Path(__file__).with_name("117924-segment-out-of-window-at-a-node.lab.yaml")
TO_THE_SERVICE = {"service": "echo", "via": "clusterIP"}
FAMILIES = ("IPv4", "IPv6")  # each family has its own rules and connection tracking
LIBERAL = """
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {tcpBeLiberal: true}
"""

GREETING, STRAY = 2, 4
TURNS = (
    client("SYN"),
    server("SYN ACK"),
    client("ACK"),
    server("ACK", "a segment that strays", ahead=10_000_000),
)


@pytest.mark.lab(SCENARIO.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stray_segment_reaches_the_node_which_resets_the_connection(lab: Lab, family: str) -> None:
    spoken = lab.dialogue("node-a", "echo", TURNS, to={**TO_THE_SERVICE, "family": family})
    (greeting,) = spoken.arrived("node-a", GREETING)
    (stray,) = spoken.arrived("node-a", STRAY)
    assert (greeting.source, greeting.source_port) != (stray.source, stray.source_port), (
        f"the stray segment was translated\n{spoken}"
    )
    assert stray.source_port == 8080, f"the stray segment does not come from the pod's port\n{spoken}"
    assert [each.words for each in spoken.resets("echo")] == ["RST"], (
        f"the node does not reset the connection any more\n{spoken}"
    )


def test_a_liberal_kernel_translates_the_stray_segment_and_resets_nothing(lab_factory: LabFactory) -> None:
    lab = lab_factory(SCENARIO.read_text() + LIBERAL)
    spoken = lab.dialogue("node-a", "echo", TURNS, to=TO_THE_SERVICE)
    (greeting,) = spoken.arrived("node-a", GREETING)
    (stray,) = spoken.arrived("node-a", STRAY)
    assert (stray.source, stray.source_port) == (greeting.source, 80), (
        f"the stray segment was not translated back\n{spoken}"
    )
    assert not spoken.resets("echo"), f"the good connection was reset\n{spoken}"


def test_another_node_drops_the_stray_segment_that_it_forwards(lab_factory: LabFactory, lab_engine: str) -> None:
    lab = lab_factory(
        SCENARIO.read_text().replace("nodes: [node-a]", "nodes: [node-b]").replace("device: pods", "device: uplink")
    )
    spoken = lab.dialogue("node-a", "echo", TURNS, to=TO_THE_SERVICE)
    if mode_of(lab_engine) in ("nftables", "ipvs"):  # kube-proxy 1.36 has no rule there against invalid packets
        assert spoken.resets("echo")
        return
    assert not spoken.arrived("node-a", STRAY), f"node-b forwarded the stray segment\n{spoken}"
    assert spoken.packets_counted_by("--ctstate INVALID") == 1, f"no rule dropped the stray segment\n{spoken}"
