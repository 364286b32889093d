"""Links that are cut and mended, as a cable is.

Owns: what the end of a link that is taken down for it loses, and that it gets all of it back.
Must not: choose a link.

A veth has a carrier while both of its ends are up (``veth_open`` and ``veth_close`` in drivers/net/veth.c), so to cut
one is to take an end down, and only the other end is then as a cable that is cut: up, and without a carrier. The port
of a bridge has nothing else to lose. Where neither end is one, a node stands at one of them, by which it routes to a
pod; it must keep its route, as it does when a cable is cut, and the pod's end goes down. With an end that goes down the
kernel takes along what stands on it (``fib_disable_ip``, ``addrconf_ifdown``, ``neigh_ifdown``): IPv6 addresses,
routes, and neighbours, permanent ones too. IPv4 addresses stay.
"""

from collections.abc import Iterator
from dataclasses import replace

from proxylab.kernel.netlink.answering import make_addresses_answer
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.carry import make_links_carry
from proxylab.kernel.netlink.requests import Request, add_neighbour, put_address, replace_route, set_down, set_up
from proxylab.plan.model import LinkEnd, Namespace, Veth, ends_by_namespace

__all__ = ["cut", "mend"]


def cut(wiring: Wiring, netns_name: str, device: str) -> None:
    """Take the carrier away from a link. Raises ``KeyError`` where the device is no end of one."""
    end = wiring.plan.end_to_cut(netns_name, device)
    wiring.routes[end.namespace].send([set_down(end)])


def mend(wiring: Wiring, netns_name: str, device: str) -> None:
    """Give it back, with all that had gone with it; when this returns, the link passes packets.

    Raises:
        KeyError: the device is no end of a link.
        InternalError: the kernel refused something, or no packet passes.
    """
    plan, end = wiring.plan, wiring.plan.end_to_cut(netns_name, device)
    indexes = {each.device: each.index for each in ends_by_namespace(plan)[end.namespace]}
    wiring.routes[end.namespace].send([set_up(end), *_furnishing(plan.namespace(end.namespace), end, indexes)])
    link = Veth(plan.end(netns_name, device), plan.peer(netns_name, device))
    make_links_carry(replace(plan, links=(link,)), wiring.namespaces, wiring.routes)
    make_addresses_answer(plan, wiring.namespaces, only=end.namespace)


def _furnishing(namespace: Namespace, end: LinkEnd, indexes: dict[str, int]) -> Iterator[Request]:
    """What stands on that device. Some of it is there still."""
    yield from (put_address(each, end.index) for each in namespace.addresses if each.device == end.device)
    yield from (add_neighbour(each, end.index) for each in namespace.neighbours if each.device == end.device)
    for route in namespace.routes:
        if end.device in route.devices:
            yield replace_route(route, *(indexes[each] for each in route.devices))
