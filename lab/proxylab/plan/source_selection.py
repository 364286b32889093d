"""``selected_source``: which of its addresses the kernel gives to packets that leave a namespace through a device.

IPv4 (inet_select_addr, net/ipv4/devinet.c): the device's primary address in whose network the next hop is, else its
first primary one. If the device has none, the first one of the namespace, in the order of its devices, ``lo`` first.
The first address of a network on a device is its primary one, so the first address that fits is never a secondary one.

IPv6 (ipv6_dev_get_saddr, net/ipv6/addrconf.c): the rules of RFC 6724, section 5, among the addresses of all devices;
for a destination of link-local scope, among those of the device. Among equals the first device wins, and on it the
address that was added last.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.plan.model import Address, Plan, PlannedNamespace

_LABELS: Final = tuple(
    (IPv6Network(prefix), label)
    for prefix, label in (
        ("::1/128", 0),
        ("::ffff:0:0/96", 4),
        ("::/96", 3),
        ("2001:10::/28", 7),
        ("2001::/32", 6),
        ("2002::/16", 2),
        ("3ffe::/16", 12),
        ("fec0::/10", 11),
        ("fc00::/7", 5),
        ("::/0", 1),
    )
)
"""The kernel's table of labels (net/ipv6/addrlabel.c), the longest prefix of each address first."""

_ORCHID: Final = IPv6Network("2001:10::/28")
_LINK_LOCAL: Final = 2
_SITE_LOCAL: Final = 5
_GLOBAL: Final = 14
_TOO_SMALL: Final = 128
"""What the kernel subtracts from a scope below the destination's, so that every sufficient scope wins."""


def selected_source(
    plan: Plan, namespace: PlannedNamespace, device: str, destination: IPAddress, next_hop: IPAddress | None
) -> IPAddress:
    """The source of packets for ``destination`` that leave ``namespace`` through ``device``.

    IPv4 asks for the ``next_hop``, which is the destination itself if no router is on the way; ``None`` stands for the
    first network of the device. Raises ``LookupError`` if the namespace has no address of that family.
    """
    family = Family.of(destination)
    candidates = [each for each in _in_order(plan, namespace) if Family.of(each.interface) is family]
    if isinstance(destination, IPv4Address):
        found = _of_ipv4(candidates, device, next_hop)
    else:
        found = _of_ipv6(candidates, device, destination)
    if found is None:
        raise LookupError(f"{namespace.name} has no {family} address")
    return found


def _in_order(plan: Plan, namespace: PlannedNamespace) -> Iterator[Address]:
    """The addresses by the order in which the kernel made their devices. A VXLAN device needs its underlay first."""
    indexes = {"lo": 0} | {bridge.device: bridge.index for bridge in namespace.bridges}
    indexes |= {end.device: end.index for link in plan.links for end in link.ends if end.namespace == namespace.name}
    for device in (*sorted(indexes, key=indexes.__getitem__), *(vxlan.device for vxlan in namespace.vxlans)):
        yield from (each for each in namespace.addresses if each.device == device)


def _of_ipv4(candidates: Sequence[Address], device: str, next_hop: IPAddress | None) -> IPAddress | None:
    own = [each for each in candidates if each.device == device]
    near = [each for each in own if next_hop is not None and next_hop in each.interface.network]
    return next((each.interface.ip for each in (*near, *own, *candidates)), None)


def _of_ipv6(candidates: Sequence[Address], device: str, destination: IPv6Address) -> IPAddress | None:
    """The best candidate by rules 1, 2, 3, 5, 6 and 8, and between the last two the kernel's own about ORCHID.

    Rules 4 and 7 decide nothing: no address of a lab is a mobile node's, or temporary.
    """
    scope, label = _scope(destination), _label(destination)
    devices = list(dict.fromkeys(each.device for each in candidates))

    def rank(candidate: tuple[int, Address]) -> tuple[object, ...]:
        added, address = candidate
        own = IPv6Address(int(address.interface.ip))
        common = 128 - (int(own) ^ int(destination)).bit_length()
        own_scope = _scope(own)
        return (
            own == destination,
            -own_scope if own_scope >= scope else own_scope - _TOO_SMALL,
            not address.deprecated,
            address.device == device,
            _label(own) == label,
            (own in _ORCHID) == (destination in _ORCHID),
            min(common, address.interface.network.prefixlen),
            -devices.index(address.device),
            added,
        )

    eligible = [each for each in enumerate(candidates) if scope > _LINK_LOCAL or each[1].device == device]
    return max(eligible, key=rank)[1].interface.ip if eligible else None


def _scope(address: IPv6Address) -> int:
    if address.is_link_local or address.is_loopback:
        return _LINK_LOCAL
    return _SITE_LOCAL if address.is_site_local else _GLOBAL


def _label(address: IPv6Address) -> int:
    return next(label for prefix, label in _LABELS if address in prefix)
