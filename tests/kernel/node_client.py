"""Connects from a node to an address and port without choosing a source, and prints as JSON what the kernel made of it.

``test_ipvs_in_a_guest`` runs it in a node. It prints the source that the kernel chose, or the error, and the address to
which the answers of the connection come, by conntrack.
"""

import json
import os
import socket
import sys
from contextlib import closing
from ipaddress import ip_address

from proxylab.addresses import Family, Protocol
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.sandbox.netns import NetNs

SECONDS = 1.0


def main(address: str, port: int) -> None:
    netns = NetNs("the node's", os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    dialled = ip_address(address), port
    try:
        with socket.create_connection((address, port), timeout=SECONDS) as connected:
            source = connected.getsockname()[0]
    except TimeoutError:
        sys.stdout.write(json.dumps({"error": "timeout"}))
        return
    with closing(Conntrack(netns)) as conntrack:
        entries = conntrack.entries(Family.of(dialled[0]), Protocol.TCP.number)
    answers = {str(each.reply.destination) for each in entries if each.destination == dialled}
    sys.stdout.write(json.dumps({"source": source, "answers": sorted(answers)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
