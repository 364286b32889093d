"""The chains through which each packet of the scenario goes, before 1.24 and since."""

import re
from collections.abc import Mapping
from typing import Final

import pytest

from proxylab.engines.engine_names import mode_of, version_of
from proxylab.pytest_plugin import Lab

BY_SERVICE: Final = "FW|XLB|EXT|SVC|SVL|SEP"  # a hash of the Service follows in their names
CHAIN: Final = re.compile(rf"^ +(?:nat|filter) +KUBE-((?:{BY_SERVICE})(?=-)|[A-Z-]+)")
OF_ALL_PACKETS: Final = {"SERVICES", "POSTROUTING", "FORWARD"}

OUTSIDE_IN = {"service": "local", "via": "loadBalancerIP", "node": "node-a"}
FROM_INSIDE = {"service": "local", "via": "loadBalancerIP"}
NODE_PORT = {"service": "local", "via": "nodePort", "node": "node-b"}
ELSEWHERE = {"service": "local", "via": "loadBalancerIP", "node": "node-b"}
RANGED = {"service": "ranged", "via": "loadBalancerIP"}
PATHS = [
    ("outside", OUTSIDE_IN, "FW XLB SEP", "EXT SVL SEP"),
    ("client", FROM_INSIDE, "FW XLB SVC SEP", "EXT SVC SEP"),
    ("node-b", FROM_INSIDE, "FW XLB MARK-MASQ SVC SEP", "EXT MARK-MASQ SVC SEP"),
    ("outside", NODE_PORT, "NODEPORTS XLB MARK-DROP FIREWALL", "EXTERNAL-SERVICES"),
    ("outside", ELSEWHERE, "FW XLB MARK-DROP", "EXTERNAL-SERVICES"),
    ("outside", {**RANGED, "node": "node-b"}, "FW MARK-MASQ SVC SEP", "FW EXT MARK-MASQ SVC SEP"),
    ("node-b", RANGED, "FW MARK-MASQ MARK-DROP FIREWALL", "PROXY-FIREWALL"),
]
"""Who sends, to what, and the chains whose rules match: of 1.23 and before, and of today."""


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@pytest.mark.parametrize(("sender", "to", "before", "since"), PATHS)
@pytest.mark.lab("kube-xlb-and-kube-mark-drop.lab.yaml")
def test_a_packet_goes_through_these_chains(
    lab: Lab, lab_engine: str, sender: str, to: Mapping[str, str], before: str, since: str, family: str
) -> None:
    if mode_of(lab_engine) != "iptables":
        pytest.skip("these are chains of mode iptables")
    path = lab.trace(sender, to={**to, "family": family})
    met = [found[1] for line in path if (found := CHAIN.match(line)) and found[1] not in OF_ALL_PACKETS]
    expected = before if version_of(lab_engine) < (1, 24) else since
    assert " ".join(dict.fromkeys(met)) == expected, "\n".join(path)
