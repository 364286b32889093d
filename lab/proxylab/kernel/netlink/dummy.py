"""A dummy device of one namespace, and the addresses on it. It stays down: its addresses are local all the same.

Mode ipvs keeps the addresses of Services on one, so that the kernel takes their packets for its own.
"""

from collections.abc import Iterable
from ipaddress import ip_address, ip_interface
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.netlink.addresses_answer import wait_until_local
from proxylab.kernel.netlink.messages import Kind
from proxylab.kernel.netlink.requests import add_device, delete_address, delete_device, put_address
from proxylab.kernel.netlink.socket import Netlink, open_netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Address
from proxylab.timing import Deadline

__all__ = ["DummyDevice"]

_PATIENCE: Final = 20.0


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
        """Delete the device."""
        index = self.index
        if index is not None:
            self._routes.send([delete_device(self._name, index)])
