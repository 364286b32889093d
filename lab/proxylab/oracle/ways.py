"""``Ways``: the next machines on a packet's way through the network of a plan, looked up once for each pair of ends."""

from collections.abc import Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.plan.forwarding import UnreachableError, next_hops, on_segment, route_to
from proxylab.plan.model import LinkEnd, Plan, Route, Veth
from proxylab.plan.resolved import PolicyRoute
from proxylab.plan.sources import masquerade_source


class WayStep(Struct, frozen=True):
    """One step of a packet: the device that it leaves through, and the machine and device where it arrives."""

    out: str
    machine: str
    device: str


class Ways:
    """The ways through one network. Routes of single flows make a network of their own (``with_route``)."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._machines = {each.name: each for each in plan.namespaces}
        self._by_route: dict[tuple[str, Route], tuple[WayStep, ...]] = {}
        self._steps: dict[tuple[str, IPAddress], tuple[WayStep, ...] | str] = {}
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

    def steps(self, machine: str, destination: IPAddress) -> Sequence[WayStep]:
        """The next steps of a packet for ``destination``: one, or several that share the flows equally.

        Raises:
            UnreachableError: the machine has no way there.
        """
        key = machine, destination
        if key not in self._steps:
            try:
                self._steps[key] = self._looked_up(machine, destination)
            except UnreachableError as error:
                self._steps[key] = str(error)
        found = self._steps[key]
        if isinstance(found, str):
            raise UnreachableError(found)
        return found

    def _looked_up(self, machine: str, destination: IPAddress) -> tuple[WayStep, ...]:
        """The steps by the plan. Those by a gateway are looked up once for all destinations of its route."""
        namespace = self._machines[machine]
        route = None if namespace.has(destination) else route_to(namespace, destination)
        if route is not None and route.unreachable:
            raise UnreachableError(f"{machine} has no way to {destination} at present")
        if route is None or (route.via is None and not route.hops):
            return self._hops(machine, destination)
        key = machine, route
        if key not in self._by_route:
            self._by_route[key] = self._hops(machine, destination)
        return self._by_route[key]

    def _hops(self, machine: str, destination: IPAddress) -> tuple[WayStep, ...]:
        hops = next_hops(self._plan, machine, destination)
        return tuple(WayStep(hop.out.device, hop.into.namespace, hop.into.device) for hop in hops)

    def masquerade_source(self, node: str, device: str, destination: IPAddress) -> IPAddress:
        """The source that ``node`` gives packets that it masquerades and that leave through ``device``."""
        key = node, device, destination
        if key not in self._sources:
            self._sources[key] = masquerade_source(self._plan, node, device, destination)
        return self._sources[key]

    def device_to(self, machine: str, address: IPAddress) -> str:
        """The device by which a machine sends packets to the address; empty without a route."""
        try:
            return route_to(self._plan.namespace(machine), address).device
        except UnreachableError:
            return ""

    def can_come_back(self, pod: str) -> bool:
        """Whether the node's end of a pod's link sends back a frame that came in by it."""
        ports = (end for link in self._plan.links for end, far in _both(link) if far.namespace == pod)
        return all(port.master is None or port.hairpin for port in ports)

    def lead_through(self, machine: str, destination: IPAddress, node: str, *, bridges_count: bool) -> bool | None:
        """Whether the ways from a machine to an address pass the rules of a node; ``None`` if only some of them do.

        ``bridges_count`` says whether packets that cross a bridge of the node pass its rules, too (br_netfilter).

        Raises:
            UnreachableError: there is no way.
        """
        seen, ahead, verdicts = {machine}, [machine], set[bool]()
        while ahead:
            here = ahead.pop()
            if here == node or self._plan.namespace(here).has(destination):
                verdicts.add(here == node)
                continue
            for step in self.steps(here, destination):
                if bridges_count and step.machine != node and self._is_bridged_by(node, here, step.out):
                    verdicts.add(True)
                elif step.machine not in seen:
                    seen.add(step.machine)
                    ahead.append(step.machine)
        return verdicts.pop() if len(verdicts) == 1 else None

    def _is_bridged_by(self, node: str, machine: str, device: str) -> bool:
        """Whether the other end of a machine's device is a port of a bridge of the node."""
        try:
            port = self._plan.peer(machine, device)
        except KeyError:
            return False
        return port.namespace == node and port.master is not None

    def by_frame(self, machine: str, destination: IPAddress, mac: str) -> WayStep | None:
        """The step of a frame for ``mac`` on the link by which ``machine`` reaches ``destination``."""
        try:
            out = self.steps(machine, destination)[0].out
        except UnreachableError:
            return None
        ends = (end for end in on_segment(self._plan, machine, out) if end.mac == mac)
        return next((WayStep(out, end.namespace, end.device) for end in ends), None)


def _both(link: Veth) -> tuple[tuple[LinkEnd, LinkEnd], tuple[LinkEnd, LinkEnd]]:
    """Each end of a link with the other one."""
    return (link.first, link.second), (link.second, link.first)
