"""Builds a plan in the kernel: namespaces, links, addresses, routes, neighbours, sysctls.

The module does what the plan says and chooses nothing. When it returns, every link carries packets and every address
answers.

The order matters. Sysctls come before a namespace's first link, since a new device copies ``conf.default``; sysctls of
single devices come before any device is up. Both ends of a veth are created in their namespaces. Bridge ports come up
before their bridge, and routes follow once all their devices are up. The build deletes, moves and closes nothing: each
of these waits for an RCU grace period of 10 to 25 ms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from proxylab.errors import InternalError
from proxylab.kernel.netlink.addresses_answer import make_addresses_answer
from proxylab.kernel.netlink.links_carry import make_links_carry
from proxylab.kernel.netlink.messages import NetlinkRequest
from proxylab.kernel.netlink.requests import (
    add_address,
    add_bridge,
    add_forwarding_entry,
    add_neighbour,
    add_route,
    add_rule,
    add_veth,
    add_vxlan,
    set_loopback_up,
    set_port,
    set_proxy_delay,
    set_up,
)
from proxylab.kernel.netlink.socket import Netlink, open_netlink
from proxylab.kernel.sandbox.netns import NetNs, make_netns
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.model import Device, LinkEnd, Plan, PlannedNamespace, ends_by_namespace


class Wiring(Struct, frozen=True):
    """A built plan: its namespaces, and a route socket in each."""

    plan: Plan
    namespaces: Mapping[str, NetNs]
    routes: Mapping[str, Netlink]


@contextmanager
def realise(plan: Plan, make: Callable[[str], NetNs] | None = None) -> Iterator[Wiring]:
    """Build ``plan`` for the length of the block.

    ``make`` makes each network namespace; by default the calling thread does. At the end the function closes the
    descriptors, and the kernel takes the namespaces apart later.

    Raises:
        CapabilityError: this machine cannot write a sysctl of the plan.
        InternalError: the kernel refused a request, so the plan is wrong.
    """
    with ExitStack() as stack:
        namespaces: dict[str, NetNs] = {}
        routes: dict[str, Netlink] = {}
        for namespace in plan.namespaces:
            netns = (make or make_netns)(namespace.name)
            stack.callback(netns.close)
            namespaces[namespace.name] = netns
            write_sysctls(netns, namespace.sysctls)
            routes[namespace.name] = open_netlink(netns)
            stack.callback(routes[namespace.name].close)
        wiring = Wiring(plan, namespaces, routes)
        _make_links(wiring)
        ends = ends_by_namespace(plan)
        for namespace in plan.namespaces:
            write_sysctls(namespaces[namespace.name], namespace.device_sysctls)
            routes[namespace.name].send(_interior_requests(namespace, ends[namespace.name]))
        make_links_carry(plan, namespaces, routes)
        make_addresses_answer(plan, namespaces, routes)
        yield wiring


def _make_links(wiring: Wiring) -> None:
    """Make bridges first, since ports name them; then veths, from the namespace of their first end."""
    requests: dict[str, list[NetlinkRequest]] = {
        namespace.name: [add_bridge(bridge) for bridge in namespace.bridges] for namespace in wiring.plan.namespaces
    }
    for link in wiring.plan.links:
        for pair in link.pairs:
            requests[pair.first.namespace].append(add_veth(pair, wiring.namespaces[pair.second.namespace]))
    for name, batch in requests.items():
        wiring.routes[name].send(batch)


def _interior_requests(namespace: PlannedNamespace, ends: Sequence[LinkEnd]) -> list[NetlinkRequest]:
    """The requests inside one namespace once its veths and bridges exist, in order."""
    tops: list[Device] = [*namespace.bridges, *namespace.vxlans]
    known = {"lo": 1} | {device.device: device.index for device in [*ends, *tops]}

    def index(device: str) -> int:
        try:
            return known[device]
        except KeyError:
            raise InternalError(f"the plan names {namespace.name}/{device}, which it does not make") from None

    return [
        set_loopback_up(),
        *(add_vxlan(vxlan, index(vxlan.underlay)) for vxlan in namespace.vxlans),
        *(add_address(address, index(address.device)) for address in namespace.addresses),
        *(set_up(end, None if end.master is None else index(end.master)) for end in ends),
        *(set_port(end) for end in ends if end.hairpin or not end.learning),
        *(set_proxy_delay(end) for end in ends if end.proxy_arp),
        *(set_up(device) for device in tops),
        *(add_neighbour(neighbour, index(neighbour.device)) for neighbour in namespace.neighbours),
        *(add_forwarding_entry(entry, index(entry.device)) for entry in namespace.forwarding),
        *(add_route(route, *map(index, route.devices)) for route in namespace.routes),
        *(add_rule(rule) for rule in namespace.rules),
    ]
