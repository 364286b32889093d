"""Feature gates that embedded engines do not behave like are refused by name."""

import pytest

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.settings import refuse_gates
from proxylab.errors import ScenarioError


def test_gates_that_change_nothing_are_taken() -> None:
    refuse_gates("embedded/iptables", ProxyConfiguration())
    refuse_gates(
        "embedded/nftables",
        ProxyConfiguration(
            feature_gates={"AllowServiceExternalIPs": True, "KubeProxyNFTablesLocalhostNodePorts": False}
        ),
    )


def test_every_other_gate_has_its_line() -> None:
    gates = {"AllowServiceExternalIPs": False, "WatchListClient": True, "NFTablesProxyMode": True}
    with pytest.raises(ScenarioError) as refused:
        refuse_gates("embedded/iptables", ProxyConfiguration(feature_gates=gates))
    first, second = str(refused.value).splitlines()
    assert "featureGates.AllowServiceExternalIPs: embedded/iptables behaves as with true; remove it" in first
    assert "featureGates.WatchListClient: embedded/iptables does not know this gate; remove it" in second
