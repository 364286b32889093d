"""A mutable plan: collects its parts one by one, and keeps indexes, MAC addresses and device names unique."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Interface, ip_interface, ip_network
from itertools import count
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.plan.device_names import DeviceNames, MacAddresses
from proxylab.plan.model import (
    Address,
    Balancer,
    Bridge,
    ForwardingEntry,
    Leftover,
    LinkEnd,
    Listener,
    Masquerade,
    Middle,
    Neighbour,
    Plan,
    PlannedNamespace,
    PodPlacement,
    PolicyRule,
    Role,
    Route,
    Sysctl,
    Veth,
    Vxlan,
)
from proxylab.plan.sysctls import DEVICES_AT_HAND, device_of, dotted, sysctls_for
from proxylab.scenario.network import Netem
from proxylab.scenario.nodes import TrackedConnection

_FIRST_INDEX: Final = 100
"""Above 1, which is ``lo``, and above the fallback devices that tunnel modules make in every new namespace."""


@dataclass
class NamespaceDraft:
    """One namespace."""

    name: str
    role: Role
    sysctls: tuple[Sysctl, ...]
    device_sysctls: list[Sysctl] = field(default_factory=list)
    devices: DeviceNames = field(default_factory=DeviceNames)
    bridges: list[Bridge] = field(default_factory=list)
    vxlans: list[Vxlan] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    rules: list[PolicyRule] = field(default_factory=list)
    neighbours: list[Neighbour] = field(default_factory=list)
    forwarding: list[ForwardingEntry] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    masquerades: list[Masquerade] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    conntrack: tuple[TrackedConnection, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)

    def address(self, device: str, address: IPAddress, network: IPNetwork | None = None) -> None:
        """Put an address on a device, with the prefix length of ``network`` or the full length."""
        prefix = address.max_prefixlen if network is None else network.prefixlen
        self.addresses.append(Address(device, ip_interface((address, prefix))))

    def link_local(self, device: str, mac: str) -> None:
        """Give a device the link-local address of its MAC (RFC 4291, appendix A).

        An IPv6 forwarder needs one as the source of its neighbour solicitations (ndisc_solicit, net/ipv6/ndisc.c).
        """
        first, second, third, *rest = bytes.fromhex(mac.replace(":", ""))
        identifier = bytes([first ^ 0x02, second, third, 0xFF, 0xFE, *rest])
        self.addresses.append(Address(device, IPv6Interface((b"\xfe\x80" + bytes(6) + identifier, 64))))

    def route(self, destination: IPNetwork, device: str, via: IPAddress | None = None, *, onlink: bool = False) -> None:
        """Route a network through a device, and via a gateway if given."""
        self.routes.append(Route(destination, device, via, onlink=onlink))

    def finished(self) -> PlannedNamespace:
        return PlannedNamespace(
            name=self.name,
            role=self.role,
            sysctls=self.sysctls,
            device_sysctls=tuple(self.device_sysctls),
            bridges=tuple(self.bridges),
            vxlans=tuple(self.vxlans),
            addresses=tuple(self.addresses),
            routes=tuple(self.routes),
            rules=tuple(self.rules),
            neighbours=tuple(self.neighbours),
            forwarding=tuple(self.forwarding),
            listeners=tuple(self.listeners),
            masquerades=tuple(self.masquerades),
            leftovers=tuple(self.leftovers),
            conntrack=self.conntrack,
            programs=self.programs,
        )


def only(address: IPAddress) -> IPNetwork:
    """The network of one address: a /32 or a /128."""
    return ip_network(address)


class Draft:
    """All namespaces and links so far."""

    def __init__(self, families: Collection[Family]) -> None:
        self._families = families
        self._namespaces: dict[str, NamespaceDraft] = {}
        self._links: list[Veth] = []
        self._pods: list[PodPlacement] = []
        self.balancers: tuple[Balancer, ...] = ()
        self._indexes = count(_FIRST_INDEX)
        self._macs = MacAddresses()

    def namespace(self, name: str, role: Role, overrides: Mapping[str, str] | None = None) -> NamespaceDraft:
        """A new namespace; ``overrides`` are sysctls instead of the lab's own."""
        named = {dotted(key): value for key, value in (overrides or {}).items()}
        late = {key: value for key, value in named.items() if device_of(key) not in (None, *DEVICES_AT_HAND)}
        early = {key: value for key, value in named.items() if key not in late}
        namespace = NamespaceDraft(name, role, sysctls_for(role, self._families, early))
        namespace.device_sysctls += [Sysctl(key, value) for key, value in late.items()]
        self._namespaces[name] = namespace
        return namespace

    def bridge(self, namespace: NamespaceDraft, wanted: str, *, promiscuous: bool = False) -> Bridge:
        """A new bridge with that name or a similar one."""
        name = namespace.devices.claim(wanted)
        namespace.bridges.append(Bridge(name, next(self._indexes), self._macs.claim(namespace.name, name), promiscuous))
        return namespace.bridges[-1]

    def vxlan(
        self, namespace: NamespaceDraft, wanted: str, underlay: str, local: IPAddress, vni: int, port: int
    ) -> Vxlan:
        """A new VXLAN device over ``underlay``."""
        name = namespace.devices.claim(wanted)
        mac = self._macs.claim(namespace.name, name)
        namespace.vxlans.append(Vxlan(name, next(self._indexes), mac, underlay, local, vni, port))
        return namespace.vxlans[-1]

    def link(
        self,
        first: NamespaceDraft,
        first_device: str,
        second: NamespaceDraft,
        second_device: str,
        master: str | None = None,
        mtu: int | None = None,
    ) -> Veth:
        """A new veth pair with these device names or similar ones. ``master`` is a bridge of ``first``."""
        port, end = self._end(first, first_device, master), self._end(second, second_device)
        link = Veth(replace(port, mtu=mtu), replace(end, mtu=mtu))
        self._links.append(link)
        return link

    def pod_link(
        self,
        node: NamespaceDraft,
        pod: NamespaceDraft,
        uplink: str,
        *,
        mtu: int | None,
        master: str | None = None,
        hairpin: bool = False,
        proxy_arp: bool = False,
    ) -> Veth:
        """A new veth pair between a node and a namespace of pods; all options but ``mtu`` are for the node's end."""
        first = replace(self._end(node, pod.name, master), mtu=mtu, hairpin=hairpin, proxy_arp=proxy_arp)
        link = Veth(first, replace(self._end(pod, uplink), mtu=mtu))
        self._links.append(link)
        return link

    def impair(self, fabric: NamespaceDraft, netems: Mapping[tuple[str, str], Netem | None]) -> None:
        """Put a middle into the links of these machines' devices, each with the netem that it has at first."""
        for at, link in enumerate(self._links):
            machine = link.second
            if (machine.namespace, machine.device) in netems:
                bridge = self.bridge(fabric, f"netem-{machine.namespace}")
                ports = (self._end(fabric, f"{machine.namespace}-{number}", bridge.device) for number in (1, 2))
                first, second = (replace(each, learning=False, mtu=machine.mtu) for each in ports)
                netem = netems[machine.namespace, machine.device]
                self._links[at] = replace(link, middle=Middle(bridge, (first, second), netem))

    def pod(self, pod: PodPlacement) -> None:
        """Add a pod's placement."""
        self._pods.append(pod)

    def finished(self) -> Plan:
        return Plan(
            namespaces=tuple(namespace.finished() for namespace in self._namespaces.values()),
            links=tuple(self._links),
            pods=tuple(self._pods),
            balancers=self.balancers,
        )

    def _end(self, namespace: NamespaceDraft, wanted: str, master: str | None = None) -> LinkEnd:
        device = namespace.devices.claim(wanted)
        return LinkEnd(namespace.name, device, next(self._indexes), self._macs.claim(namespace.name, device), master)
