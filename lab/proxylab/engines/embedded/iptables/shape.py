"""The parts of the rules of one generation of kube-proxy; ``render.CURRENT`` and ``legacy.V1_23`` are the two."""

from collections.abc import Callable

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.names import Chain
from proxylab.engines.embedded.iptables.rules import PortRules, Rule
from proxylab.engines.embedded.iptables.scope import ProxyScope
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings

__all__ = ["Shape"]


class Shape(Struct, frozen=True, kw_only=True):
    """The parts of a ruleset, by the names of ``rules.Ruleset``; ``port`` makes the rules of one service port."""

    jumps: tuple[Rule, ...]
    kept: Callable[[Family, ProxySettings], tuple[Chain, ...]]
    shared: Callable[[Family, ProxySettings], tuple[Chain, ...]]
    head: Callable[[Family, ProxySettings], tuple[Rule, ...]]
    port: Callable[[ProxyScope, ServicePortInfo], PortRules]
    tail: Callable[[Family, ProxySettings, NodeFacts], tuple[Rule, ...]]
