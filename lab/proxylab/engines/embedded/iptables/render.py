"""Objects to rules.

Owns: ``render``, which puts the kinds of chains together, ``Renderer``, which does so again and again without repeating
itself, and the threshold of kube-proxy's large-cluster mode.
Must not: know how rules reach the kernel.
"""

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.dispatch_rules import dispatch_rules
from proxylab.engines.embedded.iptables.fixed import JUMPS, fixed_chains, fixed_rules, kept_chains, node_port_jumps
from proxylab.engines.embedded.iptables.rules import PortRules, Ruleset
from proxylab.engines.embedded.iptables.scope import ProxyScope, Scope
from proxylab.engines.embedded.iptables.service_chains import owned_chains, service_chains
from proxylab.engines.embedded.iptables.shape import Shape
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.tracker import PortTracker

__all__ = ["CURRENT", "LARGE_CLUSTER_ENDPOINTS", "Renderer", "render", "render_port"]

LARGE_CLUSTER_ENDPOINTS = 1000
"""Above as many endpoints over all service ports, kube-proxy spares itself the comments of endpoint rules."""


def render_port(proxy: ProxyScope, port: ServicePortInfo) -> PortRules:
    """The rules of one service port."""
    scope = Scope.of(proxy, port)
    return PortRules(port.service, dispatch_rules(scope), owned_chains(scope), service_chains(scope))


CURRENT = Shape(
    jumps=JUMPS, kept=kept_chains, shared=fixed_chains, head=fixed_rules, port=render_port, tail=node_port_jumps
)
"""kube-proxy 1.36."""


def render(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, shape: Shape = CURRENT
) -> Ruleset:
    """The rules of one family that a proxy on ``node`` programs for ``cluster``.

    The result is a function of the objects alone; the order in which they are handed in makes no difference.
    """
    return Renderer(family, settings, shape).render(cluster, node)


class Renderer:
    """``render`` for one proxy that is asked again after every change.

    The rules of a service port are kept as long as the port and all that is common to all ports stay as they are; they
    then stand in the next ruleset as the very same object, by which ``restore_changes`` knows them.

    Attributes:
        left_out: a line for each object that no rule can be written for.
        ports: the service ports that were rendered last.
    """

    def __init__(self, family: Family, settings: ProxySettings, shape: Shape = CURRENT) -> None:
        self._shape = shape
        self._family = family
        self._settings = settings
        self._node_name = ""
        self._tracker = PortTracker(family, "")
        self._proxy: ProxyScope | None = None
        self._rendered: dict[int, tuple[ServicePortInfo, PortRules]] = {}
        self.left_out: tuple[str, ...] = ()
        self.ports: tuple[ServicePortInfo, ...] = ()

    def render(self, cluster: ClusterView, node: NodeFacts) -> Ruleset:
        """The rules for ``cluster``, equal to those of a renderer without memory."""
        if node.name != self._node_name:
            self._node_name, self._tracker = node.name, PortTracker(self._family, node.name)
        ports = self.ports = self._tracker.update(cluster)
        self.left_out = self._tracker.left_out
        large = sum([len(port.endpoints) for port in ports]) > LARGE_CLUSTER_ENDPOINTS
        proxy = ProxyScope.of(self._family, node, self._settings, brief=large)
        if proxy != self._proxy:
            self._proxy, self._rendered = proxy, {}
        before = self._rendered
        # By identity: the port is kept beside its rules, so its identity cannot pass to another one meanwhile.
        self._rendered = {id(port): before.get(id(port)) or (port, self._shape.port(proxy, port)) for port in ports}
        return Ruleset(
            family=self._family,
            jumps=self._shape.jumps,
            kept=self._shape.kept(self._family, self._settings),
            shared=self._shape.shared(self._family, self._settings),
            head=self._shape.head(self._family, self._settings),
            ports=tuple([rules for _, rules in self._rendered.values()]),
            tail=self._shape.tail(self._family, self._settings, node),
            large=large,
        )
