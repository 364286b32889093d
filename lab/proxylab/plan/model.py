"""The plan: every namespace, link, address, route, neighbour and sysctl of a lab.

Owns: the frozen objects that ``plan.topology`` computes and ``kernel.realise`` makes real, one for one.
Must not: choose anything. What stands here is final; the kernel room only obeys.

Interface indexes are chosen here, unique over the whole plan: a veth whose two ends bore the same index would have
its carrier event handled up to a second late (``linkwatch_urgent_event`` in net/core/link_watch.c), and with indexes
known in advance every message can be written without a look-up.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Final, Self

from proxylab.addresses import Family, IPAddress, IPInterface, IPNetwork, Protocol
from proxylab.frozen import dataclass

__all__ = [
    "BEHIND_LOCAL",
    "DETOUR_TABLE",
    "MAIN_TABLE",
    "Address",
    "Balancer",
    "Bridge",
    "Device",
    "ForwardingEntry",
    "Leftover",
    "LinkEnd",
    "Listener",
    "Masquerade",
    "Namespace",
    "Neighbour",
    "NextHop",
    "Plan",
    "PodPlacement",
    "PolicyRule",
    "Role",
    "Route",
    "Sysctl",
    "Veth",
    "Vxlan",
    "ends_by_namespace",
]


MAIN_TABLE: Final = 254
"""RT_TABLE_MAIN of linux/rtnetlink.h: where routes go that name no table."""


DETOUR_TABLE: Final = 50
"""Where the router looks first: the way that one errand asks for stands here and covers what the plan routes."""


BEHIND_LOCAL: Final = 1
"""The priority of the rule that lets nothing leave a namespace; the kernel's for local addresses has 0."""


class Role(StrEnum):
    """What a namespace stands for."""

    NODE = "node"
    POD = "pod"
    HOST = "host"
    ROUTER = "router"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One sysctl below ``net``, by its dotted name with ``/`` for dots inside a device name (sysctl(8)).

    ``required`` is false for keys that a kernel may lack without harm to the lab (no IPv6, no br_netfilter yet).
    """

    name: str
    value: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge device. Spanning tree is off, so ports forward at once.

    ``promiscuous`` hands every frame that crosses it to the namespace's own stack as well (kubenet's way to hairpin).
    """

    device: str
    index: int
    mac: str
    promiscuous: bool = False


@dataclass(frozen=True, slots=True)
class Vxlan:
    """A VXLAN device over ``underlay``, whose own address there is ``local``. It is told its peers and learns none."""

    device: str
    index: int
    mac: str
    underlay: str
    local: IPAddress
    vni: int
    port: int


@dataclass(frozen=True, slots=True)
class ForwardingEntry:
    """Frames for ``mac`` leave the VXLAN device ``device`` towards the tunnel end ``remote``."""

    device: str
    mac: str
    remote: IPAddress


@dataclass(frozen=True, slots=True)
class Address:
    """An address on a device; ``interface`` carries the prefix length."""

    device: str
    interface: IPInterface


@dataclass(frozen=True, slots=True)
class NextHop:
    """One of several equal ways."""

    device: str
    via: IPAddress


@dataclass(frozen=True, slots=True)
class Route:
    """A route. ``via`` is ``None`` for a route on the link; ``source`` is the preferred source address.

    With ``hops``, flows are shared among them, and ``device`` is the first one's. ``onlink`` says that ``via`` is
    reached on ``device`` though no address there says so. What is ``unreachable`` goes nowhere, and its sender is told.
    """

    destination: IPNetwork
    device: str
    via: IPAddress | None = None
    source: IPAddress | None = None
    hops: tuple[NextHop, ...] = ()
    onlink: bool = False
    unreachable: bool = False
    table: int = MAIN_TABLE

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device that the route leads to, in the order in which a request for it names them."""
        if self.unreachable:
            return ()
        return tuple(hop.device for hop in self.hops) or (self.device,)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """What comes from ``source`` (``None``: anywhere) is looked up in ``table``, by rising ``priority``."""

    family: Family
    priority: int
    table: int
    source: IPNetwork | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry."""

    device: str
    address: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class Listener:
    """A port on which this namespace answers as ``name`` (a pod's name, or a daemon's).

    ``address`` is ``None`` where it answers on all addresses; pods that share a namespace have one each. What
    ``serves_names`` answers questions about the cluster's names, too. ``position`` is where the author wrote of it.
    """

    name: str
    protocol: Protocol
    port: int
    address: IPAddress | None = None
    serves_names: bool = False
    position: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Masquerade:
    """What a node's CNI plugin masquerades: packets of pods in ``sources``, but for those to ``spared``."""

    family: Family
    sources: tuple[IPNetwork, ...]
    spared: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Rules that stand in a node before its engine starts: a text for ``tool``, iptables, ip6tables or nft."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One network namespace and all that stands in it, but for the links, which have two ends.

    ``sysctls`` are written before the first link, ``device_sysctls`` (of single devices) before these are brought up.
    """

    name: str
    role: Role
    sysctls: tuple[Sysctl, ...] = ()
    device_sysctls: tuple[Sysctl, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    vxlans: tuple[Vxlan, ...] = ()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    forwarding: tuple[ForwardingEntry, ...] = ()
    listeners: tuple[Listener, ...] = ()
    masquerades: tuple[Masquerade, ...] = ()
    leftovers: tuple[Leftover, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link.

    ``master`` is the bridge it is a port of; a ``hairpin`` port takes back what it sent. An end of ``proxy_arp``
    answers ARP at once for whatever its namespace routes elsewhere. ``mtu`` is ``None`` where it is the kernel's own.
    """

    namespace: str
    device: str
    index: int
    mac: str
    master: str | None = None
    hairpin: bool = False
    proxy_arp: bool = False
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class Veth:
    """A veth pair."""

    first: LinkEnd
    second: LinkEnd

    @property
    def ends(self) -> tuple[LinkEnd, LinkEnd]:
        """Both ends."""
        return (self.first, self.second)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlacement:
    """Where a pod lives: in a namespace of its own, in its node's (host network), or in one that it shares.

    ``addresses`` are its own on ``device`` of ``namespace``, one for each IP family of the lab, in their order.
    """

    name: str
    node: str
    namespace: str
    device: str
    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """Who stands before nodes with addresses of ``pool``: a part of the router, by whose ``device`` it sends.

    ``nodes`` holds the addresses of each node by its name, one for each family of the lab. One that is
    ``health_checked`` asks them, and leaves out who says no.
    """

    name: str
    pool: tuple[IPNetwork, ...]
    nodes: Mapping[str, tuple[IPAddress, ...]]
    device: str
    health_checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole lab. Namespaces are in the order in which they are made."""

    namespaces: tuple[Namespace, ...]
    links: tuple[Veth, ...]
    pods: tuple[PodPlacement, ...] = ()
    balancers: tuple[Balancer, ...] = ()

    @property
    def everybody(self) -> dict[str, tuple[IPAddress, ...]]:
        """The addresses of every node, pod and outside host by its name."""
        machines = (each for each in self.namespaces if each.role in (Role.NODE, Role.HOST))
        of_machines = {each.name: tuple(address.interface.ip for address in each.addresses) for each in machines}
        return of_machines | {pod.name: pod.addresses for pod in self.pods}

    def namespace(self, name: str) -> Namespace:
        """The namespace of that name. Raises ``KeyError``."""
        for namespace in self.namespaces:
            if namespace.name == name:
                return namespace
        raise KeyError(name)

    def with_routes(self, namespace: str, routes: tuple[Route, ...]) -> Self:
        """The plan with these routes in a namespace, in the place of those that lead to the same destinations."""
        covered = {(route.destination, route.table) for route in routes}
        changed = tuple(
            replace(each, routes=(*(r for r in each.routes if (r.destination, r.table) not in covered), *routes))
            if each.name == namespace
            else each
            for each in self.namespaces
        )
        return replace(self, namespaces=changed)

    def with_sysctls(self, sysctls: Mapping[str, tuple[Sysctl, ...]]) -> Self:
        """The plan with other sysctls in some namespaces, such as those that were found there."""
        changed = tuple(replace(each, sysctls=sysctls.get(each.name, each.sysctls)) for each in self.namespaces)
        return replace(self, namespaces=changed)

    def end(self, namespace: str, device: str) -> LinkEnd:
        """The link end of that device. Raises ``KeyError``."""
        for link in self.links:
            for end in link.ends:
                if (end.namespace, end.device) == (namespace, device):
                    return end
        raise KeyError(f"{namespace}/{device}")

    def peer(self, namespace: str, device: str) -> LinkEnd:
        """The other end of that device's link. Raises ``KeyError``."""
        for link in self.links:
            first, second = link.ends
            if (first.namespace, first.device) == (namespace, device):
                return second
            if (second.namespace, second.device) == (namespace, device):
                return first
        raise KeyError(f"{namespace}/{device}")

    def end_to_cut(self, namespace: str, device: str) -> LinkEnd:
        """The end that is taken down where that device's link is cut (``kernel.netlink.links``). Raises KeyError."""
        far = self.peer(namespace, device)
        return far if far.master is not None else self.end(namespace, device)


Device = LinkEnd | Bridge | Vxlan


def ends_by_namespace(plan: Plan) -> dict[str, list[LinkEnd]]:
    """The link ends in each namespace of the plan, in the order of the links."""
    ends: dict[str, list[LinkEnd]] = {namespace.name: [] for namespace in plan.namespaces}
    for link in plan.links:
        for end in link.ends:
            ends[end.namespace].append(end)
    return ends
