"""Changes links of a built lab: cuts and mends them, as a cable is cut and mended, and adds a node's dummy device.

A veth has a carrier while both of its ends are up (``veth_open`` and ``veth_close`` in drivers/net/veth.c). So to cut a
link is to take one end down. The other end is then like the end of a cut cable: up, and without a carrier. The end that
goes down loses what the kernel removes with it (``fib_disable_ip``, ``addrconf_ifdown``, ``neigh_ifdown``): IPv6
addresses, routes and neighbours, permanent ones too. IPv4 addresses stay. ``mend`` restores all of it.

The two ports in the middle of a link with netem have none of these to lose, so both are taken down. Of another link a
bridge port has none of these either, so it is the end to take down. A link without a bridge port joins a node and a
pod. The node must keep its route to the pod, as with a cut cable, so the pod's end goes down.

Mode ipvs keeps the addresses of Services on a dummy device, so that the kernel takes their packets for its own. The
device stays down: its addresses are local all the same.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_interface
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.netlink.addresses_answer import make_addresses_answer, wait_until_local
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.links_carry import make_links_carry
from proxylab.kernel.netlink.messages import Kind, NetlinkRequest
from proxylab.kernel.netlink.requests import (
    add_device,
    add_neighbour,
    delete_address,
    delete_device,
    put_address,
    replace_route,
    set_down,
    set_up,
)
from proxylab.kernel.netlink.socket import Netlink, open_netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.device_names import FABRIC
from proxylab.plan.model import Address, LinkEnd, PlannedNamespace, ends_by_namespace
from proxylab.timing import Deadline

_PATIENCE: Final = 20.0


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


def _restore_requests(namespace: PlannedNamespace, end: LinkEnd, indexes: dict[str, int]) -> Iterator[NetlinkRequest]:
    """Requests for everything that the plan has on a device. Some of it still exists."""
    yield from (put_address(each, end.index) for each in namespace.addresses if each.device == end.device)
    yield from (add_neighbour(each, end.index) for each in namespace.neighbours if each.device == end.device)
    for route in namespace.routes:
        if end.device in route.devices:
            yield replace_route(route, *(indexes[each] for each in route.devices))


class DummyDevice:
    """The dummy device of that name, which may be missing."""

    def __init__(self, netns: NetNs, name: str) -> None:
        self._netns, self._name = netns, name
        self._routes: Netlink = open_netlink(netns)

    def close(self) -> None:
        """Close the socket; the device stays."""
        self._routes.close()

    @property
    def index(self) -> int | None:
        """Its index, ``None`` where there is none. Raises ``OSError``."""
        links = self._routes.dump(Kind.GET_LINK)
        return next((each.need(int, "index") for each in links if each.find(str, "IFLA_IFNAME") == self._name), None)

    def ensure(self) -> None:
        """Make the device where it is missing. Raises ``CapabilityError``."""
        if self.index is None:
            self._routes.send([add_device(self._name, "dummy", 0)])

    def addresses(self, family: Family) -> frozenset[IPAddress]:
        """Its addresses of a family, without those that the kernel gives every link."""
        index = self.index
        found = (
            ip_address(each.find(str, "IFA_LOCAL") or each.need(str, "IFA_ADDRESS"))
            for each in self._routes.dump(Kind.GET_ADDRESS)
            if each.need(int, "index") == index
        )
        return frozenset(each for each in found if Family.of(each) is family and not each.is_link_local)

    def bind(self, addresses: Iterable[IPAddress]) -> None:
        """Add addresses, and return when all are local."""
        index, wanted = self.index or 0, list(addresses)
        self._routes.send([put_address(Address(self._name, ip_interface(each)), index) for each in wanted])
        six = {each for each in wanted if each.version == 6}
        wait_until_local(self._netns, self._routes, six, Deadline.after(_PATIENCE))

    def unbind(self, addresses: Iterable[IPAddress]) -> None:
        """Delete addresses."""
        index = self.index or 0
        self._routes.send([delete_address(Address(self._name, ip_interface(each)), index) for each in addresses])

    def delete(self) -> None:
        index = self.index
        if index is not None:
            self._routes.send([delete_device(self._name, index)])
