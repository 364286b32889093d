"""Renders the objects of a cluster into rules."""

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.dispatch_rules import dispatch_rules
from proxylab.engines.embedded.iptables.fixed import JUMPS, fixed_chains, fixed_rules, kept_chains, node_port_jumps
from proxylab.engines.embedded.iptables.rules import Generation, PortRules, Ruleset
from proxylab.engines.embedded.iptables.scope import PortScope, ProxyScope
from proxylab.engines.embedded.iptables.service_chains import owned_chains, service_chains
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker, ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings

LARGE_CLUSTER_ENDPOINTS = 1000
"""With more endpoints than this over all service ports, kube-proxy omits the comments of endpoint rules."""


def render_port(proxy: ProxyScope, port: ServicePortInfo) -> PortRules:
    """The rules of one service port."""
    scope = PortScope.of(proxy, port)
    return PortRules(port.service, dispatch_rules(scope), owned_chains(scope), service_chains(scope))


CURRENT = Generation(
    jumps=JUMPS, kept=kept_chains, shared=fixed_chains, head=fixed_rules, port=render_port, tail=node_port_jumps
)
"""kube-proxy 1.36 and 1.37."""


def render(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, generation: Generation = CURRENT
) -> Ruleset:
    """The rules of one family that a proxy on ``node`` programs for ``cluster``, in whatever order its objects are."""
    return Renderer(family, settings, generation).render(cluster, node)


class Renderer:
    """``render`` for one proxy, called after every change.

    While a service port and the settings common to all ports stay the same, the next ruleset has the same object for
    the port's rules, by which ``restore_changes`` recognises them as unchanged.
    """

    def __init__(self, family: Family, settings: ProxySettings, generation: Generation = CURRENT) -> None:
        self._generation = generation
        self._family = family
        self._settings = settings
        self._node_name = ""
        self._tracker = PortTracker(family, "", knows_ip_mode=generation.knows_ip_mode)
        self._proxy: ProxyScope | None = None
        self._rendered: dict[int, tuple[ServicePortInfo, PortRules]] = {}
        self.ports: tuple[ServicePortInfo, ...] = ()

    def render(self, cluster: ClusterView, node: NodeFacts) -> Ruleset:
        """The rules for ``cluster``, equal to those of a renderer without memory."""
        if node.name != self._node_name:
            self._node_name = node.name
            self._tracker = PortTracker(self._family, node.name, knows_ip_mode=self._generation.knows_ip_mode)
        ports = self.ports = self._tracker.update(cluster)
        large = sum([len(port.endpoints) for port in ports]) > LARGE_CLUSTER_ENDPOINTS
        proxy = ProxyScope.of(self._family, node, self._settings, omits_comments=large)
        if proxy != self._proxy:
            self._proxy, self._rendered = proxy, {}
        before = self._rendered
        # By identity: the entry keeps its port alive, so no other port can get the same id().
        self._rendered = {
            id(port): before.get(id(port)) or (port, self._generation.port(proxy, port)) for port in ports
        }
        return Ruleset(
            family=self._family,
            jumps=self._generation.jumps,
            kept=self._generation.kept(self._family, self._settings),
            shared=self._generation.shared(self._family, self._settings),
            head=self._generation.head(self._family, self._settings),
            ports=tuple([rules for _, rules in self._rendered.values()]),
            tail=self._generation.tail(self._family, self._settings, node),
            large=large,
        )
