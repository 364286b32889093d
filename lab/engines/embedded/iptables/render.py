"""Objects to rules.

Owns: ``render``, which puts the kinds of chains together, and the threshold of kube-proxy's large-cluster mode.
Must not: know how rules reach the kernel.
"""

from lab.engines.embedded.iptables.bodies import bodies, owned_chains
from lab.engines.embedded.iptables.fixed import JUMPS, fixed_chains, fixed_rules, kept_chains, node_port_jumps
from lab.engines.embedded.iptables.fronts import fronts
from lab.engines.embedded.iptables.rules import PortRules, Ruleset
from lab.engines.embedded.iptables.scope import ProxyScope, Scope
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView, ServicePortInfo, service_ports
from lab.engines.embedded.settings import ProxySettings
from lab.ip import Family

__all__ = ["LARGE_CLUSTER_ENDPOINTS", "render", "render_port"]

LARGE_CLUSTER_ENDPOINTS = 1000
"""Above as many endpoints over all service ports, kube-proxy spares itself the comments of endpoint rules."""


def render(cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family) -> Ruleset:
    """The rules of one family that a proxy on ``node`` programs for ``cluster``.

    The result is a function of the objects alone; the order in which they are handed in makes no difference.
    """
    ports = service_ports(cluster, family, node.name)
    brief = sum(len(port.endpoints) for port in ports) > LARGE_CLUSTER_ENDPOINTS
    proxy = ProxyScope.of(family, node, settings, brief=brief)
    return Ruleset(
        family=family,
        jumps=JUMPS,
        kept=kept_chains(family, settings),
        shared=fixed_chains(family, settings),
        head=fixed_rules(family, settings),
        ports=tuple(render_port(proxy, port) for port in ports),
        tail=node_port_jumps(family, settings, node),
    )


def render_port(proxy: ProxyScope, port: ServicePortInfo) -> PortRules:
    """The rules of one service port."""
    scope = Scope.of(proxy, port)
    return PortRules(port.service, fronts(scope), owned_chains(scope), bodies(scope))
