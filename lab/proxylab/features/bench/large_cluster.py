"""A cluster of thousands of Services, as the objects that a proxy follows, and the small lab that it is programmed in.

Each Service has one port and one EndpointSlice. Their addresses follow one another, so that no scenario has to list
them and nothing has to allocate them.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

NODE: Final = "node-a"
CLIENT: Final = "client"
MOST_ENDPOINTS: Final = 100
"""Of a Service: the lab has twice as many pods."""

PORT: Final = 80
_FIRST: Final = 256
"""The place of the first cluster IP in its network: those before are the cluster's own, such as that of its DNS."""


class LargeCluster(Struct, frozen=True):
    """Services by number, with cluster IPs from ``network``, whose endpoints listen on ``target``."""

    network: IPv4Network
    target: int

    @property
    def most(self) -> int:
        """How many Services have room in the network."""
        return max(0, self.network.num_addresses - _FIRST - 1)

    def frontend(self, number: int) -> SocketAddress:
        """What clients of a Service dial."""
        return SocketAddress(self.network[_FIRST + number], PORT)

    def service(self, number: int) -> Service:
        """A Service."""
        return Service(
            name=f"service-{number}",
            cluster_ips=(self.frontend(number).address,),
            ip_families=(Family.IPV4,),
            ports=(ServicePort(port=PORT, target_port=self.target),),
        )

    def slice(self, number: int, endpoints: Sequence[tuple[IPv4Address, str]]) -> EndpointSlice:
        """The only EndpointSlice of a Service, with these addresses, each on its node."""
        return EndpointSlice(
            name=f"service-{number}-abcde",
            service=f"service-{number}",
            address_type=Family.IPV4,
            ports=(EndpointPort(port=self.target),),
            endpoints=tuple(Endpoint(addresses=(address,), node_name=node) for address, node in endpoints),
        )


def spaced(count: int, most: int) -> Iterator[int]:
    """At most ``most`` of the numbers below ``count``, evenly spaced, the last one among them."""
    wanted = min(count, most)
    return ((each + 1) * count // wanted - 1 for each in range(wanted))


_SCENARIO: Final = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: bench}
spec:
  nodes: {NODE: {}}
  pods:
    CLIENT: {nodes: [NODE]}
    server: {replicas: COUNT, nodes: [NODE]}
  probes: []
"""


def scenario_for(endpoints: int) -> Scenario:
    """A node with a client, and with twice as many servers as a Service has endpoints; it has no Services yet."""
    text = _SCENARIO.replace("NODE", NODE).replace("CLIENT", CLIENT).replace("COUNT", str(2 * endpoints))
    return parse_scenario(text, "bench.lab.yaml")


def servers_for(endpoints: int) -> tuple[str, ...]:
    """The names of its servers: a Service has the first half of them as endpoints, then the other half, by turns."""
    return tuple(f"server-{number}" for number in range(1, 2 * endpoints + 1))
