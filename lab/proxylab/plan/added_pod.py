"""A pod that is added to a lab that stands: its namespace, its link, and what its node needs for it.

Only in pod network ``ptp`` (``plan.pods``) there is one with a link: there a pod's device, routes and neighbours stand
alone. One on the host network needs listeners alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.plan.device_names import DeviceNames, MacAddresses
from proxylab.plan.draft import NamespaceDraft, only
from proxylab.plan.model import LinkEnd, Listener, Neighbour, Plan, PlannedNamespace, PodPlacement, Role, Veth
from proxylab.plan.pods import everywhere
from proxylab.plan.sysctls import sysctls_for
from proxylab.scenario.network import UPLINK

_FIRST_OF_ADDED: Final = 1_000_000
"""The devices of added pods have indexes from here on; a plan counts from 100."""

_MOST_PODS: Final = 1 << 16
"""Of a node, whose part of an IPv6 network has far more addresses."""


class AddedPod(Struct, frozen=True):
    """What makes a pod part of a lab. ``node`` is its node's part alone: addresses, routes and neighbours."""

    pod: PlannedNamespace
    link: Veth
    node: PlannedNamespace

    @property
    def placement(self) -> PodPlacement:
        """Its place in the plan: a namespace of its own."""
        return PodPlacement(
            name=self.pod.name,
            node=self.node.name,
            namespace=self.pod.name,
            device=self.link.second.device,
            addresses=tuple(each.interface.ip for each in self.pod.addresses),
        )


class AddedHostPod(Struct, frozen=True):
    """What makes a pod on the host network part of a lab. ``pod`` is its node, with the listeners of the pod alone."""

    pod: PlannedNamespace
    placement: PodPlacement


Added = AddedPod | AddedHostPod


class Additions:
    """Plans the pods that are added to the lab of one plan, and remembers what they take.

    Args:
        plan: of the lab.
        families: of the lab, in their order.
        networks: the pod networks of each node.
    """

    def __init__(self, plan: Plan, families: Sequence[Family], networks: Mapping[str, Sequence[IPNetwork]]) -> None:
        self._plan = plan
        self._families = tuple(families)
        self._networks = networks
        self._taken = {address for pod in plan.pods for address in pod.addresses}
        self._names = {each.name for each in plan.namespaces} | {each.name for each in plan.pods}
        self._macs = MacAddresses()
        self._devices: dict[str, DeviceNames] = {}
        self._index = _FIRST_OF_ADDED
        self._mtu = next((end.mtu for link in plan.links for end in link.ends if end.namespace in self._homes), None)

    @property
    def _homes(self) -> Collection[str]:
        nodes = {each.name for each in self._plan.namespaces if each.role is Role.NODE}
        return {each.namespace for each in self._plan.pods} - nodes

    def can_add_to(self, node: str) -> bool:
        """Whether the node links each of its pods alone."""
        namespace = self._plan.namespace(node)
        return not namespace.bridges and not any(each.proxy_arp for link in self._plan.links for each in link.ends)

    def add(self, namespace: str, wanted: str, node: str, ports: Iterable[tuple[Protocol, int]]) -> AddedPod:
        """Plan the pod ``namespace/wanted`` on a node, which listens on these ports.

        It has its own name in the plan, or ``wanted.namespace`` where another pod has that.

        Raises:
            ValueError: the node has no address left for it.
        """
        name = self._name(namespace, wanted)
        own = tuple(self._free(network) for network in self._networks[node])
        gateways = tuple(map(self._gateway, self._networks[node]))
        devices = self._devices.setdefault(node, self._known_devices(node))
        outer, inner = self._end(node, devices.claim(wanted)), self._end(name, UPLINK)
        pod = NamespaceDraft(name, Role.POD, sysctls_for(Role.POD, self._families))
        there = NamespaceDraft(node, Role.NODE, ())
        pod.listeners += [Listener(name, *each) for each in ports]
        for gateway in gateways:
            there.address(outer.device, gateway)
            pod.route(only(gateway), inner.device)
            pod.route(everywhere(gateway), inner.device, via=gateway)
            pod.neighbours.append(Neighbour(inner.device, gateway, outer.mac))
        for address in own:
            there.route(only(address), outer.device)
            there.neighbours.append(Neighbour(outer.device, address, inner.mac))
            pod.address(inner.device, address)
        self._names.add(name)
        self._taken.update(own)
        return AddedPod(pod.finished(), Veth(outer, inner), there.finished())

    def add_on_host(
        self,
        namespace: str,
        wanted: str,
        node: str,
        addresses: Sequence[IPAddress],
        ports: Iterable[tuple[Protocol, int]],
    ) -> AddedHostPod:
        """Plan a pod in the network of its node, whose addresses it has; its name is as in ``add``."""
        name = self._name(namespace, wanted)
        own = tuple(next(each for each in addresses if Family.of(each) is family) for family in self._families)
        self._names.add(name)
        home = replace(self._plan.namespace(node), listeners=tuple(Listener(name, *each) for each in ports))
        return AddedHostPod(home, PodPlacement(name=name, node=node, namespace=node, device=UPLINK, addresses=own))

    def give_back(self, added: Added) -> None:
        """Let its name and its addresses be used again."""
        self._names.discard(added.placement.name)
        if isinstance(added, AddedPod):
            self._taken.difference_update(addresses_of(added))

    def _name(self, namespace: str, wanted: str) -> str:
        return next(each for each in _alike(wanted, namespace) if each not in self._names)

    def _end(self, namespace: str, device: str) -> LinkEnd:
        self._index += 1
        return LinkEnd(
            namespace, device, self._index, self._macs.claim(namespace, f"{device} {self._index}"), mtu=self._mtu
        )

    def _known_devices(self, node: str) -> DeviceNames:
        devices = DeviceNames()
        for end in (end for link in self._plan.links for end in link.ends if end.namespace == node):
            devices.claim(end.device)
        return devices

    def _free(self, network: IPNetwork) -> IPAddress:
        gateway = self._gateway(network)
        for number in range(1, min(network.num_addresses - 1, _MOST_PODS)):  # the last address of IPv4 is a broadcast
            address = network.network_address + number
            if address not in self._taken and address != gateway:
                return address
        raise ValueError(f"no address of {network} is free")

    def _gateway(self, network: IPNetwork) -> IPAddress:
        """The gateway of the pods that are there, or else the first address."""
        ways = (route.via for name in self._homes for route in self._plan.namespace(name).routes)
        known = (via for via in ways if via is not None and via in network)
        return next(known, network.network_address + 1)


def with_added(plan: Plan, added: Iterable[Added]) -> Plan:
    """The plan with these pods."""
    pods = tuple(added)
    if not pods:
        return plan  # of most labs, which ask for it at each probe
    nodes = {each.name: each for each in plan.namespaces}
    linked = [each for each in pods if isinstance(each, AddedPod)]
    for each in linked:
        there, more = nodes[each.node.name], each.node
        nodes[each.node.name] = replace(
            there,
            addresses=(*there.addresses, *more.addresses),
            routes=(*there.routes, *more.routes),
            neighbours=(*there.neighbours, *more.neighbours),
        )
    for one in (each for each in pods if isinstance(each, AddedHostPod)):
        there = nodes[one.pod.name]
        nodes[one.pod.name] = replace(there, listeners=(*there.listeners, *one.pod.listeners))
    return replace(
        plan,
        namespaces=(*nodes.values(), *(each.pod for each in linked)),
        links=(*plan.links, *(each.link for each in linked)),
        pods=(*plan.pods, *(each.placement for each in pods)),
    )


def addresses_of(added: Added) -> tuple[IPAddress, ...]:
    """The addresses of an added pod, in the order of the families."""
    return added.placement.addresses


def _alike(wanted: str, namespace: str) -> Iterator[str]:
    yield wanted
    yield f"{wanted}.{namespace}"
    number = 2
    while True:
        yield f"{wanted}@{number}"
        number += 1
