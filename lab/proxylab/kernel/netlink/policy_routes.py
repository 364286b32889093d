"""The way that one errand asks of the router.

Owns: the routes in ``DETOUR_TABLE``, which the router looks at before all others.
Must not: choose them (``plan.errands`` does), or touch a route of the plan.
"""

from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.plan.model import DETOUR_TABLE, Route
from proxylab.plan.resolved import PolicyRoute

__all__ = ["PolicyRoutes"]


class PolicyRoutes:
    """At most one detour stands: that of the latest errand."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._standing: PolicyRoute | None = None

    def take(self, policy_route: PolicyRoute | None) -> None:
        """Make the detour stand, and no other one; with ``None``, the routes of the plan hold."""
        if policy_route == self._standing:
            return
        if self._standing is not None:
            self._wiring.routes[self._standing.namespace].send([delete_route(_route(self._standing))])
        self._standing = None
        if policy_route is not None:
            index = self._wiring.plan.end(policy_route.namespace, policy_route.device).index
            self._wiring.routes[policy_route.namespace].send([replace_route(_route(policy_route), index)])
            self._standing = policy_route


def _route(policy_route: PolicyRoute) -> Route:
    return Route(policy_route.destination, policy_route.device, via=policy_route.via, table=DETOUR_TABLE)
