"""A plan while it is being drawn.

Owns: the parts of a plan that come in one by one, and the numbers and names that must be unique among them.
Must not: know scenarios, or which namespace is wired to which (``topology`` does).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import count
from typing import Final

from lab.plan.addresses import MacAddresses
from lab.plan.model import (
    Address,
    Bridge,
    LinkEnd,
    Listener,
    Namespace,
    Neighbour,
    Plan,
    Role,
    Route,
    Sysctl,
    Veth,
)
from lab.plan.names import DeviceNames
from lab.plan.sysctls import sysctls_for

__all__ = ["Draft", "Place"]

_FIRST_INDEX: Final = 100
"""Above 1, which is ``lo``, and above the fallback devices that tunnel modules make in every new namespace."""


@dataclass
class Place:
    """One namespace."""

    name: str
    role: Role
    sysctls: tuple[Sysctl, ...]
    devices: DeviceNames = field(default_factory=DeviceNames)
    bridges: list[Bridge] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    neighbours: list[Neighbour] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)

    def address(self, device: str, address: IPv4Address, prefix: int = 32) -> None:
        """Put an address on a device."""
        self.addresses.append(Address(device, IPv4Interface((address, prefix))))

    def route(self, destination: IPv4Network, device: str, via: IPv4Address | None = None) -> None:
        """Route a network by a device, and by a gateway where one is given."""
        self.routes.append(Route(destination, device, via))

    def finished(self) -> Namespace:
        """The namespace as the plan holds it."""
        return Namespace(
            name=self.name,
            role=self.role,
            sysctls=self.sysctls,
            bridges=tuple(self.bridges),
            addresses=tuple(self.addresses),
            routes=tuple(self.routes),
            neighbours=tuple(self.neighbours),
            listeners=tuple(self.listeners),
        )


class Draft:
    """All namespaces and links so far."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._links: list[Veth] = []
        self._indexes = count(_FIRST_INDEX)
        self._macs = MacAddresses()

    def place(self, name: str, role: Role, sysctls: Mapping[str, str] | None = None) -> Place:
        """A new namespace; ``sysctls`` override the lab's own."""
        place = Place(name, role, sysctls_for(role, sysctls))
        self._places[name] = place
        return place

    def bridge(self, place: Place, device: str) -> None:
        """A new bridge."""
        name = place.devices.claim(device)
        place.bridges.append(Bridge(name, next(self._indexes), self._macs.claim(place.name, name)))

    def link(
        self, first: Place, first_device: str, second: Place, second_device: str, master: str | None = None
    ) -> Veth:
        """A new veth pair with devices of these names or near to them. ``master`` is a bridge of ``first``."""
        link = Veth(self._end(first, first_device, master), self._end(second, second_device))
        self._links.append(link)
        return link

    def finished(self) -> Plan:
        """The plan."""
        return Plan(namespaces=tuple(place.finished() for place in self._places.values()), links=tuple(self._links))

    def _end(self, place: Place, wanted: str, master: str | None = None) -> LinkEnd:
        device = place.devices.claim(wanted)
        return LinkEnd(place.name, device, next(self._indexes), self._macs.claim(place.name, device), master)
