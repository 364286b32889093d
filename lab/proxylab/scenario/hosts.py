"""``spec.hosts`` and ``spec.loadBalancers``: the keys of the machines outside the cluster."""

from typing import Annotated, Final

from msgspec import field

from proxylab.scenario.keys import FROM_KEY, NOT_EMPTY, Between, Declared, Key
from proxylab.scenario.syntax import Name, Network, Sysctls
from proxylab.scenario.words import Position

__all__ = ["Host", "LoadBalancer"]

_MOST_ADDRESSES: Final = 1000


class Host(Declared, frozen=True, kw_only=True):
    """An outside host: a machine that is no node of the cluster."""

    name: Annotated[Name, FROM_KEY]
    segment: Annotated[
        Name,
        Key(
            "The segment that the host is on: outside, behind the router; nodes, with the nodes; or one of "
            "network.segments."
        ),
    ] = "outside"
    addresses: Annotated[int, Between(1, _MOST_ADDRESSES), Key("How many addresses it has in each family.", [200])] = 1
    sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set on the host, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.tcp_syn_retries": 1}],
        ),
    ] = field(default_factory=dict)
    position: Position


class LoadBalancer(Declared, frozen=True, kw_only=True):
    """A load balancer in front of the nodes."""

    name: Annotated[Name, FROM_KEY]
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
