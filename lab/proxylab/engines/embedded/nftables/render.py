"""Renders the objects of a cluster into the table of one family."""

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.fixed import fixed_commands
from proxylab.engines.embedded.nftables.rules import PortRules, Ruleset
from proxylab.engines.embedded.nftables.scope import ProxyScope
from proxylab.engines.embedded.nftables.service import render_port
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.ports import ClusterView, PortTracker, ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings


def render(cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family) -> Ruleset:
    """The table of one family that a proxy on ``node`` programs for ``cluster``, in whatever order its objects are."""
    return Renderer(family, settings).render(cluster, node)


class Renderer:
    """``render`` for one proxy, called after every change.

    While a service port and what all ports share stay the same, the next ruleset has the same object for the port's
    rules, by which a partial sync recognises them as unchanged.
    """

    def __init__(self, family: Family, settings: ProxySettings) -> None:
        self._family = family
        self._settings = settings
        self._tracker: PortTracker | None = None
        self._node_name = ""
        self._proxy: ProxyScope | None = None
        self._rendered: dict[int, tuple[ServicePortInfo, PortRules]] = {}
        self.ports: tuple[ServicePortInfo, ...] = ()

    def render(self, cluster: ClusterView, node: NodeFacts) -> Ruleset:
        """The table for ``cluster``, equal to that of a renderer without memory."""
        if self._tracker is None or node.name != self._node_name:
            self._node_name, self._tracker = node.name, PortTracker(self._family, node.name)
        ports = self.ports = self._tracker.update(cluster)
        proxy = ProxyScope.of(self._family, node, self._settings)
        if proxy != self._proxy:
            self._proxy, self._rendered = proxy, {}
        before = self._rendered
        # By identity: the entry keeps its port alive, so no other port can get the same id().
        self._rendered = {id(port): before.get(id(port)) or (port, render_port(proxy, port)) for port in ports}
        served = node_port_addresses(self._family, self._settings, node)
        return Ruleset.of(
            self._family,
            fixed_commands(proxy, served, cluster.service_cidrs),
            [rules for _, rules in self._rendered.values()],
        )
