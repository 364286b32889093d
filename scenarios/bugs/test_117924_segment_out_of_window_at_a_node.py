"""A segment out of its window ends the connection of a node's own program: a limit of upstream, in every mode.

https://github.com/kubernetes/kubernetes/issues/117924: the rule of 74839 stands in FORWARD, which what is for the node
itself does not pass. What cures it is nf_conntrack_tcp_be_liberal, by which connection tracking calls nothing invalid.
"""

from pathlib import Path

import pytest

from lab.engines.names import mode_of
from lab.plan.dialogue import client, server
from lab.pytest_plugin import Lab, LabFactory

SCENARIO = Path(__file__).with_name("117924-segment-out-of-window-at-a-node.lab.yaml")
TO_THE_SERVICE = {"service": "echo", "via": "clusterIP"}
FAMILIES = ("IPv4", "IPv6")  # each has tables, rules and connection tracking of its own
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
    assert (greeting.source, greeting.source_port) != (stray.source, stray.source_port), f"it was translated\n{spoken}"
    assert stray.source_port == 8080, f"it bears the pod's own address\n{spoken}"
    assert [each.words for each in spoken.resets("echo")] == ["RST"], f"somebody has learnt to drop it\n{spoken}"


def test_a_liberal_kernel_translates_it_and_resets_nothing(lab_factory: LabFactory) -> None:
    lab = lab_factory(SCENARIO.read_text() + LIBERAL)
    spoken = lab.dialogue("node-a", "echo", TURNS, to=TO_THE_SERVICE)
    (greeting,) = spoken.arrived("node-a", GREETING)
    (stray,) = spoken.arrived("node-a", STRAY)
    assert (stray.source, stray.source_port) == (greeting.source, 80), f"it was not translated back\n{spoken}"
    assert not spoken.resets("echo"), f"the good connection was reset\n{spoken}"


def test_the_node_of_a_pod_elsewhere_drops_it_where_it_is_forwarded(lab_factory: LabFactory, lab_engine: str) -> None:
    lab = lab_factory(
        SCENARIO.read_text().replace("nodes: [node-a]", "nodes: [node-b]").replace("device: pods", "device: uplink")
    )
    spoken = lab.dialogue("node-a", "echo", TURNS, to=TO_THE_SERVICE)
    if mode_of(lab_engine) == "nftables":  # kube-proxy 1.36 has no rule against invalid packets in that mode
        assert spoken.resets("echo")
        return
    assert not spoken.arrived("node-a", STRAY), f"node-b let it pass\n{spoken}"
    assert spoken.rules("--ctstate INVALID") == 1, f"no rule dropped it\n{spoken}"
