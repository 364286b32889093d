"""In mode ipvs a node answers ARP requests for the addresses of Services on its link, unless strictARP is set.

https://github.com/kubernetes/kubernetes/pull/75295: kube-ipvs0 has the addresses of all Services, and Linux answers on
each device for each address of the node. A load balancer that announces an address by ARP needs strictARP. No other
mode owns such an address. Neighbour discovery (IPv6) answers only for addresses of the device that is asked.
"""

from pathlib import Path
from typing import Final

import pytest

from proxylab.pytest_plugin import Lab, LabFactory

SCENARIO: Final = Path(__file__).with_name("strict-arp-and-excluded-networks.lab.yaml")
ADDRESSES: Final = {"IPv4": "172.18.0.200", "IPv6": "fd00:172:18::200"}
CONNECT: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=20).close()
except OSError as error:
    print(error.strerror)
else:
    print("connected")
"""


def dialled(lab: Lab, address: str) -> str:
    """What the kernel of a host on the nodes' link says when it dials an address there. Only ARP leads to the node."""
    return lab.execute("neighbour", "python3", "-c", CONNECT, address).stdout.strip()


@pytest.mark.lab(SCENARIO.name)
def test_no_node_answers_arp_for_an_external_ip_with_strict_arp(lab: Lab) -> None:
    assert {family: dialled(lab, address) for family, address in ADDRESSES.items()} == dict.fromkeys(
        ADDRESSES, "No route to host"
    )


def test_a_node_in_mode_ipvs_answers_arp_for_an_external_ip_without_strict_arp(lab_factory: LabFactory) -> None:
    lab = lab_factory(SCENARIO.read_text(encoding="utf-8").replace("strictARP: true", "strictARP: false"))
    assert dialled(lab, ADDRESSES["IPv4"]) == ("connected" if lab.mode == "ipvs" else "No route to host")
    assert dialled(lab, ADDRESSES["IPv6"]) == "No route to host"
