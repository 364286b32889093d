"""The settings that the chosen mode ignores."""

import pytest

from proxylab.cluster.configuration import IpvsConfiguration, NftablesConfiguration, ProxyConfiguration, Scheduler
from proxylab.engines.lacking import ignored_settings

MASQUERADE = ProxyConfiguration(masquerade_all=True, nftables=NftablesConfiguration(masquerade_all=True))
LEAST = ProxyConfiguration(ipvs=IpvsConfiguration(scheduler=Scheduler.LC), udp_idle_timeout=1)


@pytest.mark.parametrize(
    ("mode", "configuration", "ignored"),
    [
        ("userspace", ProxyConfiguration(localhost_node_ports=False), ["iptables.localhostNodePorts"]),
        ("nftables", ProxyConfiguration(localhost_node_ports=False), ["iptables.localhostNodePorts"]),
        ("iptables", ProxyConfiguration(localhost_node_ports=False, masquerade_all=True), []),
        (
            "ipvs",
            ProxyConfiguration(masquerade_all=True, nftables=NftablesConfiguration(masquerade_all=True)),
            ["nftables"],
        ),
        (
            "nftables",
            ProxyConfiguration(ipvs=IpvsConfiguration(scheduler=Scheduler.LC), udp_idle_timeout=1),
            ["ipvs", "udpIdleTimeout"],
        ),
        ("userspace", ProxyConfiguration(node_port_primary=True), ["nodePortAddresses"]),
        ("userspace", None, []),
    ],
)
def test_a_changed_key_that_no_proxy_of_the_mode_reads(
    mode: str, configuration: ProxyConfiguration | None, ignored: list[str]
) -> None:
    assert list(ignored_settings(mode, configuration)) == ignored
