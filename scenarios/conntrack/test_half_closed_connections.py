"""A connection that the server has closed at its side outlives the kernel's own timeout of 60 seconds.

https://github.com/kubernetes/kubernetes/issues/32551: clients that sent a minute after the server's FIN found their
connection gone.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from proxylab.plan.dialogue import client, server
from proxylab.pytest_plugin import Lab, LabFactory

pytestmark = pytest.mark.core

SCENARIO: Final = Path(__file__).with_name("half-closed-connections.lab.yaml")
FAMILIES: Final = ("IPv4", "IPv6")
DATA: Final = 6
TURNS: Final = (
    client("SYN"),
    server("SYN ACK"),
    client("ACK"),
    server("FIN ACK"),
    client("ACK"),
    client("PSH ACK", "more to come"),
    server("ACK"),
)
CONFIGURED: Final = """
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {{tcpCloseWaitTimeout: {}}}
"""


def seconds_left(lab: Lab, family: str) -> int:
    """How long node-a keeps a connection to the Service after the server has closed it at its side."""
    spoken = lab.dialogue("client", "echo", TURNS, to={"service": "echo", "via": "clusterIP", "family": family})
    assert [each.data for each in spoken.arrived("echo", DATA)] == ["more to come"], f"{spoken}"
    table = lab.execute("node-a", "cat", "/proc/net/nf_conntrack").stdout
    found = re.findall(rf"^{family.lower()} .* tcp +6 (\d+) CLOSE_WAIT .* dport=80 ", table, re.MULTILINE)
    assert len(found) == 1, f"{table}\n{spoken}"
    return int(found[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.lab(SCENARIO.name)
def test_a_node_keeps_a_half_closed_connection_for_an_hour(lab: Lab, family: str) -> None:
    assert 3540 <= seconds_left(lab, family) <= 3600


@pytest.mark.parametrize(("timeout", "seconds"), [("5m", 300), ("0s", 60)])
def test_the_time_is_that_of_the_configuration_or_of_the_kernel(
    lab_factory: LabFactory, timeout: str, seconds: int
) -> None:
    lab = lab_factory(SCENARIO.read_text() + CONFIGURED.format(timeout))
    assert seconds - 55 <= seconds_left(lab, "IPv4") <= seconds
