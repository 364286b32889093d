"""A plan made real: namespaces, links, addresses, routes, neighbours, sysctls.

Owns: the order in which it happens, and the promise that every link carries when it has happened.
Must not: choose anything; what stands in the plan is done, and nothing else.

The order matters. Sysctls are written before a namespace's first link, since devices copy ``conf.default`` when they
are born. Both ends of a veth are made in place. Ports are brought up before their bridge. Nothing is deleted, moved or
closed on the way: each of these waits for an RCU grace period of 10 to 25 ms.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lab.errors import InternalError
from lab.kernel.carry import make_links_carry
from lab.kernel.netlink import (
    Request,
    RouteSocket,
    add_address,
    add_bridge,
    add_neighbour,
    add_route,
    add_veth,
    set_loopback_up,
    set_up,
)
from lab.kernel.netns import NetNs, make_netns
from lab.kernel.sysctl import write_sysctls
from lab.plan.model import Bridge, LinkEnd, Namespace, Plan

__all__ = ["Wiring", "realise"]


@dataclass(frozen=True, slots=True)
class Wiring:
    """A plan that is real: its namespaces, and a route socket in each."""

    plan: Plan
    namespaces: Mapping[str, NetNs]
    routes: Mapping[str, RouteSocket]


@contextmanager
def realise(plan: Plan) -> Iterator[Wiring]:
    """Make ``plan`` real for the length of the block.

    On leaving, descriptors are closed and the kernel takes the namespaces apart in its own time.

    Raises:
        CapabilityError: a sysctl of the plan cannot be written on this machine.
        InternalError: the kernel refused something, which a right plan rules out.
    """
    with ExitStack() as stack:
        namespaces: dict[str, NetNs] = {}
        routes: dict[str, RouteSocket] = {}
        for namespace in plan.namespaces:
            netns = make_netns(namespace.name)
            stack.callback(netns.close)
            namespaces[namespace.name] = netns
            write_sysctls(netns, namespace.sysctls)
            routes[namespace.name] = RouteSocket(netns)
            stack.callback(routes[namespace.name].close)
        wiring = Wiring(plan, namespaces, routes)
        _make_links(wiring)
        for namespace in plan.namespaces:
            routes[namespace.name].send(_furnishing(plan, namespace))
        make_links_carry(plan, namespaces, routes)
        yield wiring


def _make_links(wiring: Wiring) -> None:
    """Bridges first, since their ports name them; then the veths, from the namespace of their first end."""
    requests: dict[str, list[Request]] = {namespace.name: [] for namespace in wiring.plan.namespaces}
    for namespace in wiring.plan.namespaces:
        requests[namespace.name] += [add_bridge(bridge) for bridge in namespace.bridges]
    for link in wiring.plan.links:
        requests[link.first.namespace].append(add_veth(link, wiring.namespaces[link.second.namespace]))
    for name, batch in requests.items():
        wiring.routes[name].send(batch)


def _furnishing(plan: Plan, namespace: Namespace) -> list[Request]:
    """All that happens inside one namespace once its devices exist, in order."""
    ends = [end for link in plan.links for end in link.ends if end.namespace == namespace.name]
    devices: dict[str, LinkEnd | Bridge] = {end.device: end for end in ends}
    devices |= {bridge.device: bridge for bridge in namespace.bridges}

    def index(device: str) -> int:
        if device == "lo":
            return 1
        try:
            return devices[device].index
        except KeyError:
            raise InternalError(f"the plan names {namespace.name}/{device}, which it does not make") from None

    requests = [set_loopback_up()]
    requests += [add_address(address, index(address.device)) for address in namespace.addresses]
    requests += [set_up(end, None if end.master is None else index(end.master)) for end in ends]
    requests += [set_up(bridge) for bridge in namespace.bridges]
    requests += [add_neighbour(neighbour, index(neighbour.device)) for neighbour in namespace.neighbours]
    requests += [add_route(route, index(route.device)) for route in namespace.routes]
    return requests
