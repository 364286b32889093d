"""The way that one errand asks of the router.

Owns: the routes in ``DETOUR_TABLE``, which the router looks at before all others.
Must not: choose them (``plan.errands`` does), or touch a route of the plan.
"""

from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.plan.resolved import Detour
from proxylab.plan.model import DETOUR_TABLE, Route

__all__ = ["Detours"]


class Detours:
    """At most one detour stands: that of the latest errand."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._standing: Detour | None = None

    def take(self, detour: Detour | None) -> None:
        """Make the detour stand, and no other one; with ``None``, the routes of the plan hold."""
        if detour == self._standing:
            return
        if self._standing is not None:
            self._wiring.routes[self._standing.namespace].send([delete_route(_route(self._standing))])
        self._standing = None
        if detour is not None:
            index = self._wiring.plan.end(detour.namespace, detour.device).index
            self._wiring.routes[detour.namespace].send([replace_route(_route(detour), index)])
            self._standing = detour


def _route(detour: Detour) -> Route:
    return Route(detour.destination, detour.device, via=detour.via, table=DETOUR_TABLE)
