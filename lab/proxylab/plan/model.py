"""The plan: every namespace, link, address, route, neighbour and sysctl of a lab.

``plan.topology`` computes these frozen objects and ``kernel.netlink.build`` makes each of them real. Interface indexes
are unique over the whole plan: if both ends of a veth had the same index, the kernel would handle its carrier event up
to a second late (``linkwatch_urgent_event`` in net/core/link_watch.c). Known indexes also spare netlink look-ups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final, Self

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPInterface, IPNetwork, Protocol
from proxylab.cluster.objects import PodPort
from proxylab.encoding import Record
from proxylab.scenario.network import Netem
from proxylab.scenario.nodes import TrackedConnection

MAIN_TABLE: Final = 254
"""RT_TABLE_MAIN of linux/rtnetlink.h: the table of routes that name none."""


POLICY_TABLE: Final = 50
"""The router's first table: it holds a resolved probe's policy route, which overrides the plan's routes."""


BEHIND_LOCAL: Final = 1
"""The priority of the rule that blackholes a namespace; the kernel's own rule for local addresses has 0."""


class Role(StrEnum):
    """The role of a namespace."""

    NODE = "node"
    POD = "pod"
    HOST = "host"
    ROUTER = "router"
    SEGMENT = "segment"


class Sysctl(Record, frozen=True):
    """One sysctl below ``net``, by its dotted name with ``/`` for dots inside a device name (sysctl(8)).

    ``required`` is false for keys that a kernel may lack (no IPv6, no br_netfilter yet) without harm to the lab.
    """

    name: str
    value: str
    required: bool = True


class Bridge(Record, frozen=True):
    """A bridge device. Spanning tree is off, so ports forward at once.

    ``promiscuous`` hands every frame that crosses it to the namespace's own stack as well (kubenet's way to hairpin).
    """

    device: str
    index: int
    mac: str
    promiscuous: bool = False


class Vxlan(Record, frozen=True):
    """A VXLAN device over ``underlay`` with the local address ``local``. Its peers are static; it learns none."""

    device: str
    index: int
    mac: str
    underlay: str
    local: IPAddress
    vni: int
    port: int


class ForwardingEntry(Record, frozen=True):
    """Frames for ``mac`` leave the VXLAN device ``device`` towards the tunnel end ``remote``."""

    device: str
    mac: str
    remote: IPAddress


class Address(Record, frozen=True):
    """An address on a device; ``interface`` has the prefix length.

    A ``deprecated`` one receives packets, but IPv6 chooses it as a source only if there is no other.
    """

    device: str
    interface: IPInterface
    deprecated: bool = False


class NextHop(Record, frozen=True):
    """One of several equal next hops."""

    device: str
    via: IPAddress


class Route(Record, frozen=True):
    """A route. ``via`` is ``None`` for a route on the link; ``source`` is the preferred source address.

    With ``hops``, flows spread over them, and ``device`` is the first one's. With ``onlink``, ``via`` is a neighbour on
    ``device`` although no address there covers it. For an ``unreachable`` route the sender gets an ICMP error. ``mtu``
    is that of the route, where it is not its device's.
    """

    destination: IPNetwork
    device: str
    via: IPAddress | None = None
    source: IPAddress | None = None
    hops: tuple[NextHop, ...] = ()
    onlink: bool = False
    unreachable: bool = False
    table: int = MAIN_TABLE
    mtu: int | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device of the route, in the order of its netlink request."""
        if self.unreachable:
            return ()
        return tuple(hop.device for hop in self.hops) or (self.device,)


class PolicyRule(Record, frozen=True):
    """Packets from ``source`` (``None``: anywhere) use ``table``; rules apply by rising ``priority``."""

    family: Family
    priority: int
    table: int
    source: IPNetwork | None = None


class Neighbour(Record, frozen=True):
    """A permanent neighbour entry."""

    device: str
    address: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class Listener:
    """A port on which this namespace answers as ``name`` (a pod's name, or a daemon's).

    ``address`` is ``None`` for all addresses; pods that share a namespace have one each. With ``serves_names`` it also
    answers DNS questions about the cluster. A real
    ``program`` listens there itself, perhaps with ``tls``. A ``silent`` one answers nothing. ``position`` is its place
    in the scenario.
    """

    name: str
    protocol: Protocol
    port: int
    address: IPAddress | None = None
    serves_names: bool = False
    program: str = ""
    tls: bool = False
    silent: bool = False
    position: str = field(default="", compare=False)


class Masquerade(Record, frozen=True):
    """The masquerade of a node's CNI plugin: packets of pods in ``sources``, except those to ``spared``."""

    family: Family
    sources: tuple[IPNetwork, ...]
    spared: tuple[IPNetwork, ...]


class Leftover(Record, frozen=True):
    """Rules that a node holds before its engine starts: a text for ``tool``, iptables, ip6tables or nft."""

    tool: str
    text: str


class PlannedNamespace(Record, frozen=True, kw_only=True):
    """One network namespace and its contents, except links.

    The lab writes ``sysctls`` before the first link, and ``device_sysctls`` (of single devices) before it brings the
    devices up. ``programs`` are the paths of nft and iptables in a node, where they are not the machine's own.
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
    conntrack: tuple[TrackedConnection, ...] = ()
    programs: Mapping[str, str] = {}

    def has(self, address: IPAddress) -> bool:
        """Whether one of its devices has that address."""
        return any(each.interface.ip == address for each in self.addresses)


class LinkEnd(Record, frozen=True):
    """One end of a link.

    ``master`` is its bridge. The bridge learns the addresses behind a port with ``learning``, and may send a frame back
    out of a ``hairpin`` port. An end with ``proxy_arp`` answers ARP at once for every address that its namespace routes
    elsewhere. ``mtu`` is ``None`` for the default.
    """

    namespace: str
    device: str
    index: int
    mac: str
    master: str | None = None
    hairpin: bool = False
    proxy_arp: bool = False
    mtu: int | None = None
    learning: bool = True


class Middle(Record, frozen=True):
    """What stands between the two ends of a link with netem: a bridge with two ports, which learns no addresses.

    ``ends`` face the link's first and second end; netem works where frames leave through them. So each frame passes the
    taps at the ends of the link before and after netem. ``netem`` is that of the time when the lab begins.
    """

    bridge: Bridge
    ends: tuple[LinkEnd, LinkEnd]
    netem: Netem | None


class Veth(Record, frozen=True):
    """A link: a veth pair, or two of them with a ``middle``."""

    first: LinkEnd
    second: LinkEnd
    middle: Middle | None = None

    @property
    def ends(self) -> tuple[LinkEnd, LinkEnd]:
        """Both ends."""
        return (self.first, self.second)

    @property
    def pairs(self) -> tuple["Veth", ...]:
        if self.middle is None:
            return (self,)
        return Veth(self.first, self.middle.ends[0]), Veth(self.middle.ends[1], self.second)


class Forwarding(Record, frozen=True, kw_only=True):
    """What a pod passes on: packets to these ports of its own go to the Service, at the same ports."""

    namespace: str
    service: str
    ports: tuple[PodPort, ...]


class PodPlacement(Record, frozen=True, kw_only=True):
    """The placement of a pod: in its own network namespace, its node's (host network), or a shared one.

    ``addresses`` are its own on ``device`` of ``namespace``, one for each IP family of the lab, in the same order.
    ``commands`` run in it in place of the lab's own program. With ``forwards`` it runs
    none, and passes packets on.
    """

    name: str
    node: str
    namespace: str
    device: str
    addresses: tuple[IPAddress, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    forwards: Forwarding | None = None


class Balancer(Record, frozen=True, kw_only=True):
    """A load balancer with the addresses of ``pool``. It is part of the router and sends through its ``device``.

    ``nodes`` are the addresses of each node by its name, one for each family of the lab. With ``health_checked`` the
    balancer checks the nodes and skips those that fail. Where the pool is ``announced_by`` a node, the router has no
    part in it: that node answers ARP and neighbour discovery for the addresses on the segment of the nodes. With
    ``dials_node_ports`` it translates the addresses to node ports, and with ``replaces_client`` the client's to its
    own.
    """

    name: str
    pool: tuple[IPNetwork, ...]
    nodes: Mapping[str, tuple[IPAddress, ...]]
    device: str
    health_checked: bool
    announced_by: str = ""
    dials_node_ports: bool = False
    replaces_client: bool = False


class Plan(Record, frozen=True, kw_only=True):
    """A whole lab. Namespaces are in the order of their creation."""

    namespaces: tuple[PlannedNamespace, ...]
    links: tuple[Veth, ...]
    pods: tuple[PodPlacement, ...] = ()
    balancers: tuple[Balancer, ...] = ()

    @property
    def addresses_by_name(self) -> dict[str, tuple[IPAddress, ...]]:
        """The addresses of every node, pod and outside host by its name."""
        machines = (each for each in self.namespaces if each.role in (Role.NODE, Role.HOST))
        of_machines = {each.name: tuple(address.interface.ip for address in each.addresses) for each in machines}
        return of_machines | {pod.name: pod.addresses for pod in self.pods}

    def namespace(self, name: str) -> PlannedNamespace:
        """The namespace of that name. Raises ``KeyError``."""
        for namespace in self.namespaces:
            if namespace.name == name:
                return namespace
        raise KeyError(name)

    def with_routes(self, namespace: str, routes: tuple[Route, ...]) -> Self:
        """The plan with these routes in a namespace, instead of its routes to the same destinations."""
        covered = {(route.destination, route.table) for route in routes}
        changed = tuple(
            replace(each, routes=(*(r for r in each.routes if (r.destination, r.table) not in covered), *routes))
            if each.name == namespace
            else each
            for each in self.namespaces
        )
        return replace(self, namespaces=changed)

    def with_announcers(self, announcers: Mapping[str, str]) -> Self:
        """The plan in which neighbours know these nodes for the pools of announced balancers, by their names."""
        changed = (replace(each, announced_by=announcers.get(each.name, each.announced_by)) for each in self.balancers)
        return replace(self, balancers=tuple(changed))

    def announcer(self, address: IPAddress) -> str:
        """The node that answers on its segment for an address that no machine has; empty if none does."""
        announced = (each for each in self.balancers if each.announced_by)
        return next((each.announced_by for each in announced if any(address in pool for pool in each.pool)), "")

    def dialler(self, address: IPAddress) -> Balancer | None:
        """The balancer that translates the address to node ports; ``None`` if none does."""
        dialling = (each for each in self.balancers if each.dials_node_ports)
        return next((each for each in dialling if any(address in pool for pool in each.pool)), None)

    def with_sysctls(self, sysctls: Mapping[str, tuple[Sysctl, ...]]) -> Self:
        """The plan with other sysctls in some namespaces, such as the values that a lab has now."""
        changed = tuple(replace(each, sysctls=sysctls.get(each.name, each.sysctls)) for each in self.namespaces)
        return replace(self, namespaces=changed)

    def end(self, namespace: str, device: str) -> LinkEnd:
        """The link end of that device. Raises ``KeyError``."""
        first, second = self.link(namespace, device).ends
        return first if (first.namespace, first.device) == (namespace, device) else second

    def peer(self, namespace: str, device: str) -> LinkEnd:
        """The other end of that device's link. Raises ``KeyError``."""
        first, second = self.link(namespace, device).ends
        return second if (first.namespace, first.device) == (namespace, device) else first

    def link(self, namespace: str, device: str) -> Veth:
        """The link of that device. Raises ``KeyError``."""
        for link in self.links:
            if any((end.namespace, end.device) == (namespace, device) for end in link.ends):
                return link
        raise KeyError(f"{namespace}/{device}")

    def end_to_cut(self, namespace: str, device: str) -> LinkEnd:
        """The end that ``kernel.netlink.links`` takes down to cut that device's link. Raises ``KeyError``."""
        far = self.peer(namespace, device)
        return far if far.master is not None else self.end(namespace, device)


Device = LinkEnd | Bridge | Vxlan


def ends_by_namespace(plan: Plan) -> dict[str, list[LinkEnd]]:
    """The ends of veth pairs in each namespace of the plan, in the order of the links."""
    ends: dict[str, list[LinkEnd]] = {namespace.name: [] for namespace in plan.namespaces}
    for link in plan.links:
        for end in chain.from_iterable(pair.ends for pair in link.pairs):
            ends[end.namespace].append(end)
    return ends
