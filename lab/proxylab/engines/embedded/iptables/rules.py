"""Rules as data: ``Rule``, the rules of one service port, the whole ``Ruleset``, and what makes it (``Generation``).

Chains are of two kinds. *Shared* chains hold rules of all service ports, and every load rewrites them. *Service chains*
belong to one service port, so a partial sync skips them while that port does not change. All service chains are in the
nat table.

The few rules that depend on no Service are objects. Rules of service ports are lines from the beginning: a large
cluster has tens of thousands, and no code reads their parts.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.cluster.objects import ObjectKey
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.scope import ProxyScope
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings

RuleLine = tuple[Table, str]
"""A line of iptables-restore, and its table."""


class Rule(NamedTuple):
    """One rule.

    Attributes:
        matches: the matches in order, each as iptables(8) spells it; empty ones are skipped.
        target: the chain or target, with the target's options; empty for a rule that only counts.
    """

    chain: Chain
    matches: tuple[str, ...]
    target: str = ""

    def line(self, verb: str = "-A") -> str:
        """The rule as a line of iptables-restore. ``-A`` appends, ``-I`` puts it at the top."""
        matches = " ".join(filter(None, self.matches))
        conditions = f" {matches}" if matches else ""
        target = f" -j {self.target}" if self.target else ""
        return f"{verb} {self.chain.name}{conditions}{target}"


def append_line(chain: Chain, conditions: str, target: str) -> RuleLine:
    """The line that appends a rule to ``chain``."""
    return chain.table, f"-A {chain.name} {conditions} -j {target}"


class PortRules(NamedTuple):
    """The rules of one service port.

    Attributes:
        dispatch_rules: rules in shared chains that match its frontends.
        chains: the names of its service chains.
        service_chains: the rules in those, a line each; empty where there are none.
    """

    service: ObjectKey
    dispatch_rules: tuple[RuleLine, ...]
    chains: tuple[str, ...]
    service_chains: str


class Ruleset(Struct, frozen=True):
    """All rules of one proxy in one family.

    Attributes:
        jumps: rules in built-in chains. A load inserts the missing ones at the top one after the other, so the last of
            them ends up first.
        kept: chains that must exist but whose contents the proxy does not own.
        head: rules of shared chains that come before those of the service ports.
        ports: in the order of their Services.
        tail: rules of shared chains that must come last.
        large: whether kube-proxy's large-cluster mode applies.
    """

    family: Family
    jumps: tuple[Rule, ...]
    kept: tuple[Chain, ...]
    shared: tuple[Chain, ...]
    head: tuple[Rule, ...]
    ports: tuple[PortRules, ...]
    tail: tuple[Rule, ...]
    large: bool = False


class Generation(Struct, frozen=True, kw_only=True):
    """One generation of kube-proxy's rules: what makes each part of a ``Ruleset``; ``port`` those of a service port.

    ``knows_ip_mode`` says whether the proxy leaves addresses with ``ipMode: Proxy`` to their load balancer.
    """

    jumps: tuple[Rule, ...]
    kept: Callable[[Family, ProxySettings], tuple[Chain, ...]]
    shared: Callable[[Family, ProxySettings], tuple[Chain, ...]]
    head: Callable[[Family, ProxySettings], tuple[Rule, ...]]
    port: Callable[[ProxyScope, ServicePortInfo], PortRules]
    tail: Callable[[Family, ProxySettings, NodeFacts], tuple[Rule, ...]]
    knows_ip_mode: bool = True
