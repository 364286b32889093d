"""The policy route of one probe: a route on the router in ``POLICY_TABLE``, which the router consults first.

``plan.resolved`` describes it. The routes of the plan stay as they are.
"""

from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.plan.model import POLICY_TABLE, Route
from proxylab.plan.resolved import PolicyRoute


class PolicyRoutes:
    """At most one policy route exists: that of the latest probe."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._current: PolicyRoute | None = None

    def install(self, policy_route: PolicyRoute | None) -> None:
        """Install this policy route and remove the former one; with ``None``, leave only the routes of the plan."""
        if policy_route == self._current:
            return
        if self._current is not None:
            self._wiring.routes[self._current.namespace].send([delete_route(_route(self._current))])
        self._current = None
        if policy_route is not None:
            index = self._wiring.plan.end(policy_route.namespace, policy_route.device).index
            self._wiring.routes[policy_route.namespace].send([replace_route(_route(policy_route), index)])
            self._current = policy_route


def _route(policy_route: PolicyRoute) -> Route:
    return Route(policy_route.destination, policy_route.device, via=policy_route.via, table=POLICY_TABLE)
