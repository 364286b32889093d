"""``spec.hosts`` and ``spec.loadBalancers``: the keys of the machines outside the cluster."""

from typing import Annotated, Final

from msgspec import field

from proxylab.addresses import IPAddress
from proxylab.scenario.keys import NOT_EMPTY, OWN_NAME, Between, Check, Declared, Key
from proxylab.scenario.netem import AnyNetem
from proxylab.scenario.network import OUTSIDE
from proxylab.scenario.syntax import Address, Name, Network, Sysctls, distinct
from proxylab.scenario.words import Position

__all__ = ["Host", "LoadBalancer"]

_MOST_ADDRESSES: Final = 1000


class Host(Declared, frozen=True, kw_only=True):
    """An outside host: a machine that is no node of the cluster."""

    name: Annotated[Name, OWN_NAME]
    segment: Annotated[
        Name,
        Key(
            "The segment that the host is on: outside, behind the router; nodes, with the nodes; or one of "
            "network.segments."
        ),
    ] = OUTSIDE
    addresses: Annotated[
        Annotated[int, Between(1, _MOST_ADDRESSES)] | Annotated[tuple[Address, ...], NOT_EMPTY, Check(distinct)],
        Key(
            "How many addresses it has in each family, which the lab chooses; or a list of fixed ones on its segment.",
            [200, ["203.0.113.77"]],
        ),
    ] = 1
    sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set on the host, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.tcp_syn_retries": 1}],
        ),
    ] = field(default_factory=dict)
    netem: Annotated[
        AnyNetem | None,
        Key("What the host's link to its segment does to packets.", [{"loss": "10%", "delay": "20ms"}]),
    ] = None
    position: Position

    @property
    def fixed_addresses(self) -> tuple[IPAddress, ...]:
        """The addresses that the author fixes."""
        return () if isinstance(self.addresses, int) else self.addresses

    @property
    def chosen_addresses(self) -> int:
        """How many addresses the lab chooses in each family of which none is fixed."""
        return self.addresses if isinstance(self.addresses, int) else 1


class LoadBalancer(Declared, frozen=True, kw_only=True):
    """A load balancer in front of the nodes."""

    name: Annotated[Name, OWN_NAME]
    pool: Annotated[
        tuple[Network, ...],
        NOT_EMPTY,
        Key("The networks from which Services of type LoadBalancer get their addresses.", [["192.0.2.0/28"]]),
    ]
    nodes: Annotated[
        tuple[str, ...],
        NOT_EMPTY,
        Key("The nodes it sends to. The default is all nodes.", [["node-a", "node-b"]]),
    ] = ()
    health_checked: Annotated[bool, Key("Whether it skips nodes that fail on their health-check node port.")] = False
    position: Position
