"""``Ways``: the next machines on a packet's way through the network of a plan, looked up once for each pair of ends."""

from collections.abc import Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.plan.forwarding import UnreachableError, next_hops, on_segment
from proxylab.plan.model import Plan, Route
from proxylab.plan.resolved import PolicyRoute
from proxylab.plan.sources import masquerade_source

__all__ = ["Step", "Ways"]


class Step(Struct, frozen=True):
    """One step of a packet: the device that it leaves through, and the machine and device where it arrives."""

    out: str
    machine: str
    device: str


class Ways:
    """The ways through one network. Routes of single flows make a network of their own (``with_route``)."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._steps: dict[tuple[str, IPAddress], tuple[Step, ...] | str] = {}
        self._sources: dict[tuple[str, str, IPAddress], IPAddress] = {}
        self._with_routes: dict[PolicyRoute, Ways] = {}

    def with_route(self, route: PolicyRoute | None) -> "Ways":
        """The ways with one more route."""
        if route is None:
            return self
        if route not in self._with_routes:
            added = (Route(route.destination, route.device, route.via),)
            self._with_routes[route] = Ways(self._plan.with_routes(route.namespace, added))
        return self._with_routes[route]

    def steps(self, machine: str, destination: IPAddress) -> Sequence[Step]:
        """The next steps of a packet for ``destination``: one, or several that share the flows equally.

        Raises:
            UnreachableError: the machine has no way there.
        """
        key = machine, destination
        if key not in self._steps:
            try:
                hops = next_hops(self._plan, machine, destination)
                self._steps[key] = tuple(Step(hop.out.device, hop.into.namespace, hop.into.device) for hop in hops)
            except UnreachableError as error:
                self._steps[key] = str(error)
        found = self._steps[key]
        if isinstance(found, str):
            raise UnreachableError(found)
        return found

    def masquerade_source(self, node: str, device: str, destination: IPAddress) -> IPAddress:
        """The source that ``node`` gives packets that it masquerades and that leave through ``device``."""
        key = node, device, destination
        if key not in self._sources:
            self._sources[key] = masquerade_source(self._plan, node, device, destination)
        return self._sources[key]

    def by_frame(self, machine: str, destination: IPAddress, mac: str) -> Step | None:
        """The step of a frame for ``mac`` on the link by which ``machine`` reaches ``destination``."""
        try:
            out = self.steps(machine, destination)[0].out
        except UnreachableError:
            return None
        ends = (end for end in on_segment(self._plan, machine, out) if end.mac == mac)
        return next((Step(out, end.namespace, end.device) for end in ends), None)
