"""Cuts and mends links, as a cable is cut and mended.

A veth has a carrier while both of its ends are up (``veth_open`` and ``veth_close`` in drivers/net/veth.c). So to cut a
link is to take one end down. The other end is then like the end of a cut cable: up, and without a carrier. The end that
goes down loses what the kernel removes with it (``fib_disable_ip``, ``addrconf_ifdown``, ``neigh_ifdown``): IPv6
addresses, routes and neighbours, permanent ones too. IPv4 addresses stay. ``mend`` restores all of it.

The two ports in the middle of a link with netem have none of these to lose, so both are taken down. Of another link a
bridge port has none of these either, so it is the end to take down. A link without a bridge port joins a node and a
pod. The node must keep its route to the pod, as with a cut cable, so the pod's end goes down.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from proxylab.kernel.netlink.addresses_answer import make_addresses_answer
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.links_carry import make_links_carry
from proxylab.kernel.netlink.messages import Request
from proxylab.kernel.netlink.requests import add_neighbour, put_address, replace_route, set_down, set_up
from proxylab.plan.device_names import FABRIC
from proxylab.plan.model import LinkEnd, Namespace, ends_by_namespace

__all__ = ["cut", "mend"]


def cut(wiring: Wiring, netns_name: str, device: str) -> None:
    """Take the carrier from a link. Raises ``KeyError`` where the device is no end of a link."""
    middle = wiring.plan.link(netns_name, device).middle
    for end in (wiring.plan.end_to_cut(netns_name, device),) if middle is None else middle.ends:
        wiring.routes[end.namespace].send([set_down(end)])


def mend(wiring: Wiring, netns_name: str, device: str) -> None:
    """Restore the carrier and all that the cut removed. When this returns, the link passes packets.

    Raises:
        KeyError: the device is no end of a link.
        InternalError: the kernel refused a request, or no packet passes.
    """
    plan, end, link = wiring.plan, wiring.plan.end_to_cut(netns_name, device), wiring.plan.link(netns_name, device)
    indexes = {each.device: each.index for each in ends_by_namespace(plan)[end.namespace]}
    if link.middle is not None:
        wiring.routes[FABRIC].send([set_up(each) for each in link.middle.ends])
    else:
        again = _restore_requests(plan.namespace(end.namespace), end, indexes)
        wiring.routes[end.namespace].send([set_up(end), *again])
    make_links_carry(replace(plan, links=(link,)), wiring.namespaces, wiring.routes)
    make_addresses_answer(plan, wiring.namespaces, wiring.routes, only=end.namespace)


def _restore_requests(namespace: Namespace, end: LinkEnd, indexes: dict[str, int]) -> Iterator[Request]:
    """Requests for everything that the plan has on a device. Some of it still exists."""
    yield from (put_address(each, end.index) for each in namespace.addresses if each.device == end.device)
    yield from (add_neighbour(each, end.index) for each in namespace.neighbours if each.device == end.device)
    for route in namespace.routes:
        if end.device in route.devices:
            yield replace_route(route, *(indexes[each] for each in route.devices))
