"""Where flows may arrive: the endpoints behind a Service's address and port, and the receivers of any probe.

``oracle.weakest`` knows the endpoints; the proxy under test chooses among those that are reachable (near, local).
Receivers are pods, programs that listen on a node, and the stacks that answer echo requests.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.cluster.objects import EndpointSlice, Service, ServicePort
from proxylab.oracle.weakest import endpoints_of_port
from proxylab.plan.host_ports import LedTo, NodeSocket
from proxylab.plan.lookup import own_address
from proxylab.plan.model import PlannedNamespace, PodPlacement
from proxylab.plan.resolved import STACK, Destination, Receiver
from proxylab.scenario.network import UPLINK
from proxylab.scenario.probes import ServiceTarget, Target
from proxylab.scenario.targets import addresses_by_frontend, service_port
from proxylab.scenario.words import Frontend

_Served = tuple[Service, ServicePort]


class Dialled(NamedTuple):
    """Where packets are sent to; the port of an echo request is 0."""

    address: IPAddress
    port: int
    protocol: Transport


class _ServedAt(NamedTuple):
    """An address and port at which a Service is served; without an address, at each that serves node ports."""

    address: IPAddress | None
    port: int
    protocol: Protocol | None


_NO_PORT: Final = 0


class ExpectedEndpoints(Struct, frozen=True):
    """Where the flows of a probe may arrive.

    ``service_port`` is the dialled Service's port, and ``affinity_timeout`` its timeoutSeconds, ``None`` without
    session affinity. If the target is not a Service's, the port is empty. With ``or_dialled`` it is a node port at an
    address that need not serve any, so the node's own program may get the flow, too.
    """

    service_port: str
    endpoints: tuple[Destination, ...]
    affinity_timeout: int | None = None
    or_dialled: bool = False


class LabEndpoints:
    """The endpoints of all Services of one lab at one time."""

    def __init__(
        self,
        services: Iterable[Service],
        slices: Iterable[EndpointSlice],
        nodes: Collection[IPAddress],
        surely_serves: Callable[[IPAddress], bool] = lambda _: True,
        led: Mapping[NodeSocket, Sequence[LedTo]] = MappingProxyType({}),
    ) -> None:
        """Endpoints of ``services``.

        The Services have everything allocated; ``nodes`` are the addresses that may serve node ports, and
        ``surely_serves`` says of which that is certain. ``led`` says where host ports lead.
        """
        self._surely_serves = surely_serves
        self._led = led
        self._services = {(each.namespace, each.name): each for each in services}
        self._nodes = frozenset(nodes)
        ingress = (each for service in self._services.values() for each in service.load_balancer_ingress)
        self._left = frozenset(address for each in ingress if not each.is_claimed for address in each.addresses)
        self._slices: defaultdict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
        for each in slices:
            self._slices[each.namespace, each.service].append(each)
        self._frontends: dict[_ServedAt, _Served] = {}
        for service in self._services.values():
            for address in chain.from_iterable(addresses_by_frontend(service).values()):
                for port in service.ports:
                    self._frontends.setdefault(_ServedAt(address, port.port, port.protocol), (service, port))
            for port in (port for port in service.ports if port.node_port):
                self._frontends.setdefault(_ServedAt(None, port.node_port, port.protocol), (service, port))

    def expected(self, target: Target, asked: Transport | None, dialled: Dialled) -> ExpectedEndpoints:
        """Where the flows may arrive.

        ``asked`` is the protocol that the probe names. An echo request has no port, so it gives no destinations.
        """
        if dialled.protocol is Transport.ICMP:
            return ExpectedEndpoints("", ())
        if dialled.address in self._left and (led := self._led_to(*dialled)) is not None:
            return led
        found = self._named(target, asked)
        return self.at(*dialled) if found is None else self._of(*found, dialled.address)

    def at(self, address: IPAddress, number: int, protocol: Transport) -> ExpectedEndpoints:
        """Where the flows to an address may arrive: at the endpoints of the Service there, or at the address itself."""
        found = self._at(address, number, protocol)
        if found is None and (led := self._led_to(address, number, protocol)) is not None:
            return led
        if found is None:
            return ExpectedEndpoints("", (Destination(address=address, port=number),))
        by_node_port = (self._is_node(address) and found[1].node_port == number) and not self._surely_serves(address)
        return replace(self._of(*found, address), or_dialled=by_node_port)

    def _led_to(self, address: IPAddress, number: int, protocol: Transport) -> ExpectedEndpoints | None:
        """Where the flows to a host port may arrive: at its pod, or behind the Service to which that passes them on.

        ``None`` where no host port is served.
        """
        ends = self._led.get(NodeSocket(address, protocol.served, number), ()) if protocol.served else ()
        if not ends:
            return None
        found: list[ExpectedEndpoints] = []
        for each in ends:
            service = self._services.get(each.service)
            ports = service.ports if service else ()
            served = next((port for port in ports if (port.protocol, port.port) == (protocol.served, each.port)), None)
            if service is not None and served is not None:
                found.append(self._of(service, served, each.address))
            elif not any(each.service):
                found.append(ExpectedEndpoints("", (Destination(address=each.address, port=each.port),)))
        # Without the Service's port: rules of others than the engine lead the packets as well.
        return ExpectedEndpoints("", tuple(dict.fromkeys(end for each in found for end in each.endpoints)))

    def _of(self, service: Service, port: ServicePort, address: IPAddress) -> ExpectedEndpoints:
        endpoints = tuple(each for each in self._behind(service, port) if each.address.version == address.version)
        return ExpectedEndpoints(_name(service, port), tuple(dict.fromkeys(endpoints)), service.affinity_timeout)

    def _named(self, target: Target, asked: Transport | None) -> _Served | None:
        """The port of the Service that a probe names; ``None`` for a DNS name or a health-check node port."""
        if not isinstance(target, ServiceTarget) or target.via in (Frontend.DNS_NAME, Frontend.HEALTH_CHECK_NODE_PORT):
            return None
        service = self._services.get((target.namespace, target.service))
        return None if service is None else (service, service_port(service, target.port, asked))

    def _at(self, address: IPAddress, number: int, protocol: Transport) -> _Served | None:
        """The Service and its port that serve an address."""
        is_node = self._is_node(address)
        by_node_port = self._frontends.get(_ServedAt(None, number, protocol.served)) if is_node else None
        return by_node_port or self._frontends.get(_ServedAt(address, number, protocol.served))

    def _is_node(self, address: IPAddress) -> bool:
        return address in self._nodes or address.is_loopback

    def _behind(self, service: Service, port: ServicePort, *passed: _Served) -> Iterator[Destination]:
        """The endpoints of a Service's port. One that is itself a frontend leads on to the endpoints behind that."""
        for each in endpoints_of_port(service, port, self._slices.get((service.namespace, service.name), ())):
            yield Destination(address=each.address, port=each.port, is_reachable=each.is_reachable)
            onward = self._at(each.address, each.port, Transport(port.protocol))
            if each.is_reachable and onward is not None and onward not in (*passed, (service, port)):
                yield from self._behind(*onward, *passed, (service, port))


def _name(service: Service, port: ServicePort) -> str:
    """A Service's port as kube-proxy spells it: ``NAMESPACE/NAME:PORT``, without the last part for a nameless port."""
    return f"{service.namespace}/{service.name}" + (f":{port.name}" if port.name else "")


def everywhere(
    pods: Iterable[PodPlacement],
    nodes: Iterable[PlannedNamespace],
    hosts: Iterable[PlannedNamespace],
    family: Family,
    protocol: Transport,
) -> tuple[Receiver, ...]:
    """The receivers of any probe in a family and over a protocol.

    The pods are those with a network namespace of their own. The stacks of nodes and hosts answer echo requests.
    """
    in_pods = (
        Receiver(name=pod.name, namespace=pod.namespace, device=pod.device, address=own_address(pod, family))
        for pod in pods
    )
    if protocol is Transport.ICMP:
        return (*in_pods, *_stacks(nodes, hosts, family))
    return (*in_pods, *(program for node in nodes for program in _programs(node, family, protocol)))


def _programs(node: PlannedNamespace, family: Family, protocol: Transport) -> Iterator[Receiver]:
    """The host-network pods and daemons of a node, each with the addresses and ports on which it listens."""
    own = _own_addresses(node, family)
    ports: defaultdict[tuple[str, IPAddress], list[int]] = defaultdict(list)
    for listener in (each for each in node.listeners if each.protocol is protocol.served):
        for address in own if listener.address is None else (listener.address,):
            if Family.of(address) is family:
                ports[listener.name, address].append(listener.port)
    for (name, address), numbers in ports.items():
        yield Receiver(
            name=name, namespace=node.name, device=STACK, address=address, ports=tuple(dict.fromkeys(numbers))
        )


def _stacks(nodes: Iterable[PlannedNamespace], hosts: Iterable[PlannedNamespace], family: Family) -> Iterator[Receiver]:
    """Nodes and outside hosts with all their addresses: the stack of each answers echo requests."""
    for node in nodes:
        for address in (*_own_addresses(node, family), family.loopback):
            yield Receiver(name=node.name, namespace=node.name, device=STACK, address=address, ports=(_NO_PORT,))
    for host in hosts:
        for address in _own_addresses(host, family):
            yield Receiver(name=host.name, namespace=host.name, device=UPLINK, address=address)


def _own_addresses(placement: PlannedNamespace, family: Family) -> tuple[IPAddress, ...]:
    """All addresses of a namespace, on any device, except IPv6 link-local."""
    own = (each.interface.ip for each in placement.addresses)
    return tuple(
        dict.fromkeys(
            each for each in own if Family.of(each) is family and not (each.version == 6 and each.is_link_local)
        )
    )
