"""The commands that ``proxylab up`` and a failed probe suggest."""

import pytest
from scenario_cases import frontend, probe, two_nodes

from proxylab.addresses import Transport
from proxylab.report.standing_labs import commands
from proxylab.scenario.probes import Send


@pytest.mark.parametrize(
    ("protocol", "first"),
    [
        (None, "proxylab probe sender echo:53"),
        (Transport.TCP, "proxylab probe sender echo:53"),
        (Transport.UDP, "proxylab probe sender echo:53 --udp"),
        (Transport.ICMP, "proxylab probe sender echo:53 --icmp"),
    ],
)
def test_a_command_sends_what_the_probe_sends(protocol: Transport | None, first: str) -> None:
    case = two_nodes(probe("p", "sender", frontend(53), Send(protocol=protocol)))
    assert next(iter(commands(case))) == first
