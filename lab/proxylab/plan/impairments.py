"""Links with netem in a plan: which links have a middle, their permanent neighbours, and the ways through them.

A link gets a middle if the scenario gives it netem when the lab begins or in a step; all other links are plain pairs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.encoding import Record
from proxylab.plan.device_names import FABRIC
from proxylab.plan.model import LinkEnd, Neighbour, Plan, PlannedNamespace, Veth
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import UPLINK, Netem

_Where = tuple[str, IPAddress]
"""A device, and an address behind it."""


class LinkDirection(Record, frozen=True):
    """One direction of a link with a middle.

    Attributes:
        link: the link, as ``change.links`` names it.
        device: of that machine.
        outward: whether frames leave the machine; otherwise they come to it.
        port: the middle's end by which frames leave it, with netem.
        behind: the devices from which a frame may come into this way next, as ``NAMESPACE/DEVICE``.
    """

    link: str
    device: str
    outward: bool
    port: LinkEnd
    behind: tuple[str, ...]


def impaired_links(scenario: Scenario) -> dict[tuple[str, str], Netem | None]:
    """The links that need a middle, by machine and device, with the netem that each has when the lab begins."""
    found = {(node.name, UPLINK): node.netem for node in scenario.nodes}
    found |= {(node.name, each.device): each.netem for node in scenario.nodes for each in node.uplinks}
    found |= {(name, UPLINK): group.netem for group in scenario.pods for name in group.pod_names}
    found |= {(host.name, UPLINK): host.netem for host in scenario.hosts}
    changes = [change for step in scenario.steps for change in step.change.links]
    later = {(change.netns_name, change.device) for change in changes if change.netem is not None}
    return {link: netem for link, netem in found.items() if netem is not None or link in later}


def with_neighbours(plan: Plan) -> Plan:
    """The plan with permanent neighbours on both sides of each link with a middle.

    netem loses the packets of ARP and of neighbour discovery as any others. A node whose question is lost drops the
    packets that wait for the answer, and the judge could not tell that from a drop by its rules.
    """
    added: dict[str, dict[_Where, Neighbour]] = {}
    for link in (link for link in plan.links if link.middle is not None):
        around = [*_around(plan, link.first), *_around(plan, link.second)]
        for one in around:
            known = added.setdefault(one.namespace, {})
            for other in around:
                if (other.namespace, other.device) == (one.namespace, one.device):
                    continue
                for address in _addresses(plan, other.namespace, other.device):
                    known[one.device, address] = Neighbour(one.device, address, other.mac)
        if len(around) == 2 and link.first.proxy_arp:
            known = added[link.second.namespace]
            for route in plan.namespace(link.second.namespace).routes:
                if route.via is not None:
                    neighbour = Neighbour(link.second.device, route.via, link.first.mac)
                    known.setdefault((link.second.device, route.via), neighbour)
    return replace(plan, namespaces=tuple(_with(each, added.get(each.name, {})) for each in plan.namespaces))


def without_netem(plan: Plan) -> Plan:
    """The plan with plain links only."""
    middles = {link.middle.bridge for link in plan.links if link.middle is not None}
    namespaces = (
        replace(each, bridges=tuple(bridge for bridge in each.bridges if bridge not in middles))
        for each in plan.namespaces
    )
    return replace(plan, namespaces=tuple(namespaces), links=tuple(replace(each, middle=None) for each in plan.links))


def ways(plan: Plan) -> tuple[LinkDirection, ...]:
    """Both directions of every link with a middle."""
    return tuple(way for link in plan.links if link.middle is not None for way in _ways(plan, link))


class _AddressedDevice(NamedTuple):
    """A device with addresses, and its MAC."""

    namespace: str
    device: str
    mac: str


def _around(plan: Plan, end: LinkEnd) -> Iterator[_AddressedDevice]:
    """The devices with addresses on the side of a link's end."""
    if end.master is None:
        yield _AddressedDevice(end.namespace, end.device, end.mac)
        return
    for bridge in plan.namespace(end.namespace).bridges:
        if bridge.device == end.master and any(_addresses(plan, end.namespace, bridge.device)):
            yield _AddressedDevice(end.namespace, bridge.device, bridge.mac)
    for link in plan.links:
        port, far = link.ends
        if (port.namespace, port.master) == (end.namespace, end.master) and port != end:
            yield _AddressedDevice(far.namespace, far.device, far.mac)


def _addresses(plan: Plan, namespace: str, device: str) -> Iterator[IPAddress]:
    yield from (each.interface.ip for each in plan.namespace(namespace).addresses if each.device == device)


def _with(namespace: PlannedNamespace, added: Mapping[_Where, Neighbour]) -> PlannedNamespace:
    """The namespace with these neighbours besides its own."""
    own = {(each.device, each.address): each for each in namespace.neighbours}
    return replace(namespace, neighbours=tuple({**added, **own}.values())) if added else namespace


def _ways(plan: Plan, link: Veth) -> Iterator[LinkDirection]:
    if link.middle is None:
        return
    machine = link.second
    name = machine.namespace if machine.device == UPLINK else f"{machine.namespace}/{machine.device}"
    to_first, to_machine = link.middle.ends
    yield LinkDirection(name, machine.device, True, to_first, (_named(machine),))
    behind: tuple[str, ...] = (_named(link.first),)
    if link.first.namespace == FABRIC:
        # The fabric has no taps, nor has the router, which forwards between its segments.
        behind = tuple(_named(each.second) for each in plan.links if each.first.namespace == FABRIC)
        behind += tuple(f"{each.name}/{vxlan.device}" for each in plan.namespaces for vxlan in each.vxlans)
    yield LinkDirection(name, machine.device, False, to_machine, behind)


def _named(end: LinkEnd) -> str:
    return f"{end.namespace}/{end.device}"
