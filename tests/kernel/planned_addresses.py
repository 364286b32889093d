"""Every namespace of a network that has an address, and its socket."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.model import Plan, Role

SECONDS = 2.0


class PlannedAddress(NamedTuple):
    """An address of a namespace."""

    name: str
    namespace: str
    address: IPAddress


def planned_addresses(plan: Plan) -> Iterator[PlannedAddress]:
    """Every namespace, once for each relevant address: the first and last of hosts, the first of nodes per uplink."""
    for pod in plan.pods:
        for address in pod.addresses:
            yield PlannedAddress(pod.name, pod.namespace, address)
    for namespace in plan.namespaces:
        own = [each.interface.ip for each in namespace.addresses if each.device in ("eth0", "eth1")]
        for family in (4, 6):
            fitting = [address for address in own if address.version == family and not address.is_link_local]
            if fitting and namespace.role in (Role.NODE, Role.HOST):
                for address in {fitting[0], fitting[-1]}:
                    yield PlannedAddress(namespace.name, namespace.name, address)


def udp(wiring: Wiring, own: PlannedAddress, port: int = 0) -> socket.socket:
    family = socket.AF_INET if own.address.version == 4 else socket.AF_INET6
    with inside(wiring.namespaces[own.namespace]):
        made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(SECONDS)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((str(own.address), port))
    return made
