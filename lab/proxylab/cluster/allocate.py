"""What the control plane allocates for Services: ``allocate_services`` as the API server, ``give_ingress`` as a cloud.

The API server allocates families, cluster IPs, node ports and health-check node ports. It draws at random; the lab
allocates in order, so that the same scenario always has the same addresses. As in the API server, allocated values come
from the upper part of a range first (KEP-3070 for cluster IPs, KEP-3668 for node ports). The lower band is for Services
that request a value, so that such a request seldom takes a value that another Service already has. A Service keeps its
values through an update (``keep_allocated``). A cloud's controller assigns the addresses of load balancers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.objects import LoadBalancerIngress, ObjectKey, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.encoding import Record
from proxylab.errors import ScenarioError

API_SERVER = ObjectKey("Service", "default", "kubernetes")
API_SERVER_OFFSET = 1
"""The API server's own Service has the first address of each range."""
DNS_OFFSET = 10
"""By custom of kubeadm, kind and others kube-dns requests the tenth address."""

DUAL_STACK_POLICIES = frozenset({"PreferDualStack", "RequireDualStack"})
NODE_PORT_TYPES = frozenset({ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER})

ValueT = TypeVar("ValueT", int, IPAddress)


class PortRange(Record, frozen=True):
    """kube-apiserver's ``--service-node-port-range``, both ends included."""

    first: int = 30000
    last: int = 32767

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


NODE_PORTS: Final = PortRange()
"""The default range."""


def allocate_services(
    services: Sequence[Service],
    service_cidrs: Sequence[IPNetwork],
    node_ports: PortRange = NODE_PORTS,
    further: Sequence[IPNetwork] = (),
) -> tuple[Service, ...]:
    """Complete the Services as the API server does.

    Requested values go first, and no two Services get the same value. A Service added at the end does not change the
    others, unless it requests a value that one of them would get. The Services are in the order of allocation, and the
    networks have the primary family first. Only Services that request an address get one of ``further``.

    Returns:
        The same Services in the same order, with ``cluster_ips``, ``ip_families``, ``node_port`` and
        ``health_check_node_port`` filled in where the API server would.

    Raises:
        ScenarioError: with a line for each value that is not available.
    """
    return _Allocation(service_cidrs, node_ports, further).run(services)


@dataclass
class _FreeValues(Generic[ValueT]):
    """Values of one range, each with at most one owner. Messages name the owner."""

    candidates: Iterator[ValueT]
    held: dict[ValueT, str] = field(default_factory=dict)

    def claim(self, value: ValueT, owner: str) -> str | None:
        """Take ``value`` for ``owner``. Returns the holder if another owner has it already."""
        holder = self.held.setdefault(value, owner)
        return None if holder == owner else holder

    def next(self, owner: str) -> ValueT | None:
        """Take the next free value; ``None`` if none is left."""
        for value in self.candidates:
            if value not in self.held:
                self.held[value] = owner
                return value
        return None


class _Allocation:
    """One run over all Services: first claim every requested value, then allocate the missing ones."""

    def __init__(self, service_cidrs: Sequence[IPNetwork], node_ports: PortRange, further: Sequence[IPNetwork]) -> None:
        self._further = further
        self._networks = {Family.of(network): network for network in service_cidrs}
        self._families = tuple(self._networks)
        self._addresses = {
            family: _FreeValues[IPAddress](_addresses_to_hand_out(network))
            for family, network in self._networks.items()
        }
        self._range = node_ports
        self._node_ports = _FreeValues[int](_node_ports_to_hand_out(node_ports))
        self._problems: list[str] = []

    def run(self, services: Sequence[Service]) -> tuple[Service, ...]:
        settled = [replace(service, ip_families=self._families_of(service)) for service in services]
        for service in settled:
            self._claim(service)
        completed = tuple(self._complete(service) for service in settled)
        if self._problems:
            raise ScenarioError(self._problems)
        return completed

    def _problem(self, service: Service, path: str, what: str) -> None:
        self._problems.append(f"Service {service.namespace}/{service.name}: {path}: {what}")

    def _families_of(self, service: Service) -> tuple[Family, ...]:
        """The families of a Service: those it requests or the cluster's first, and both if its policy says so."""
        if service.type is ServiceType.EXTERNAL_NAME:
            return ()
        asked = service.ip_families or tuple(Family.of(address) for address in service.cluster_ips)
        for family in asked:
            if family not in self._networks:
                have = " and ".join(self._families)
                self._problem(service, "spec.ipFamilies", f"the cluster has no {family} service CIDR, only {have}")
        first = asked[:1] or self._families[:1]
        if service.ip_family_policy not in DUAL_STACK_POLICIES:
            if len(asked) > 1:
                self._problem(
                    service, "spec.ipFamilies", "two families need ipFamilyPolicy PreferDualStack or RequireDualStack"
                )
            return first
        families = tuple(dict.fromkeys((*asked, *first, *self._families)))
        if service.ip_family_policy == "RequireDualStack" and len(self._families) < 2:
            self._problem(
                service, "spec.ipFamilyPolicy", f"RequireDualStack needs a second service CIDR beside {first[0]}"
            )
        return families

    def _claim(self, service: Service) -> None:
        for index, address in enumerate(service.cluster_ips):
            self._claim_address(service, index, address)
        for index, port in enumerate(service.ports):
            if port.node_port:
                self._claim_node_port(service, f"spec.ports[{index}].nodePort", port.node_port, str(service.key))
        if service.health_check_node_port:
            if needs_health_check(service):
                self._claim_node_port(
                    service,
                    "spec.healthCheckNodePort",
                    service.health_check_node_port,
                    f"the health check of {service.key}",
                )
            else:
                self._problem(
                    service,
                    "spec.healthCheckNodePort",
                    "only a LoadBalancer Service with externalTrafficPolicy Local has one",
                )

    def _claim_address(self, service: Service, index: int, address: IPAddress) -> None:
        path = f"spec.clusterIPs[{index}]"
        if index >= len(service.ip_families) or Family.of(address) is not service.ip_families[index]:
            families = ", ".join(service.ip_families) or "none"
            self._problem(service, path, f"{address} does not match the Service's IP families ({families})")
            return
        network = self._networks.get(Family.of(address))
        if network is None:
            return  # reported as a family that the cluster does not have
        if not (_is_usable(address, network) or is_host_address(address, self._further)):
            self._problem(service, path, f"{address} is not a host address of the service CIDR {network}")
        elif address == network[API_SERVER_OFFSET] and service.key != API_SERVER:
            self._problem(service, path, f"{address} is the address of the API server; choose another one")
        elif holder := self._addresses[Family.of(address)].claim(address, str(service.key)):
            self._problem(service, path, f"{address} is already held by {holder}")

    def _claim_node_port(self, service: Service, path: str, number: int, owner: str) -> None:
        if service.type not in NODE_PORT_TYPES:
            self._problem(service, path, f"a Service of type {service.type} has no node ports")
        elif number not in self._range.numbers:
            self._problem(service, path, f"{number}: provided port is not in the range {self._range}")
        elif holder := self._node_ports.claim(number, owner):
            self._problem(service, path, f"{number} is already held by {holder}")

    def _complete(self, service: Service) -> Service:
        if service.type is ServiceType.EXTERNAL_NAME:
            return service
        gets_node_ports = service.type in NODE_PORT_TYPES and (
            service.allocate_node_ports or service.type is not ServiceType.LOAD_BALANCER
        )
        return replace(
            service,
            cluster_ips=service.cluster_ips if service.headless else self._addresses_of(service),
            ports=self._ports_of(service) if gets_node_ports else service.ports,
            health_check_node_port=self._health_check_port_of(service),
        )

    def _addresses_of(self, service: Service) -> tuple[IPAddress, ...]:
        missing = [family for family in service.ip_families[len(service.cluster_ips) :] if family in self._addresses]
        handed_out = []
        for family in missing:
            address = self._addresses[family].next(str(service.key))
            if address is None:
                self._problem(
                    service,
                    "spec.clusterIPs",
                    f"{self._networks[family]} has no address left; make the service CIDR larger",
                )
            else:
                handed_out.append(address)
        return (*service.cluster_ips, *handed_out)

    def _ports_of(self, service: Service) -> tuple[ServicePort, ...]:
        """The ports with their node ports. All protocols of a port share one number, as for DNS over TCP and UDP."""
        by_port = {port.port: port.node_port for port in reversed(service.ports) if port.node_port}
        completed = []
        for index, port in enumerate(service.ports):
            number = port.node_port or by_port.get(port.port)
            if not number:
                number = self._next_node_port(service, f"spec.ports[{index}].nodePort")
            by_port.setdefault(port.port, number)
            completed.append(replace(port, node_port=number))
        return tuple(completed)

    def _health_check_port_of(self, service: Service) -> int:
        if service.health_check_node_port or not needs_health_check(service):
            return service.health_check_node_port
        return self._next_node_port(service, "spec.healthCheckNodePort")

    def _next_node_port(self, service: Service, path: str) -> int:
        number = self._node_ports.next(str(service.key))
        if number is None:
            self._problem(service, path, f"none of the node ports {self._range} is left; remove Services")
        return number or 0


def needs_health_check(service: Service) -> bool:
    """Whether the Service has a health-check node port: ``externalTrafficPolicy: Local`` behind a balancer."""
    return service.type is ServiceType.LOAD_BALANCER and service.external_traffic_policy is TrafficPolicy.LOCAL


def is_host_address(address: IPAddress, networks: Iterable[IPNetwork]) -> bool:
    """Whether a Service may have the address by one of these networks."""
    return any(_is_usable(address, network) for network in networks)


def _is_usable(address: IPAddress, network: IPNetwork) -> bool:
    """Whether a Service may have the address: not the network's own, nor the broadcast address of IPv4."""
    if address not in network or address == network.network_address:
        return False
    return network.version == 6 or address != network.broadcast_address


def _addresses_to_hand_out(network: IPNetwork) -> Iterator[IPAddress]:
    """The upper band, then the lower one, without the addresses of the API server and kube-dns."""
    size = network.num_addresses - (2 if network.version == 4 else 1)
    band = _band(size, low=16, high=256, share=16)
    reserved = {API_SERVER_OFFSET, DNS_OFFSET}
    offsets = chain(range(band + 1, size + 1), range(1, min(band, size) + 1))
    return (network[offset] for offset in offsets if offset not in reserved)


def _node_ports_to_hand_out(node_ports: PortRange) -> Iterator[int]:
    band = _band(len(node_ports.numbers), low=16, high=128, share=32)
    return chain(node_ports.numbers[band:], node_ports.numbers[:band])


def _band(size: int, *, low: int, high: int, share: int) -> int:
    """How many values at the start of a range are for requests; none if the range is small."""
    return 0 if size < low else min(max(low, size // share), high)


def keep_allocated(service: Service, before: Service) -> Service:
    """The updated Service with the allocated fields that it keeps (``patchAllocatedValues`` in the API server).

    A Service keeps its cluster IPs and its node ports while its type has them, each node port with the port of the same
    name, and its health-check node port while it needs one (pkg/registry/core/service/storage/alloc.go). The ingress of
    a load balancer is status: an update of the spec does not change it while the type stays the same. ``service`` is
    the update as the author wrote it, ``before`` the stored object with everything allocated.
    """
    if _has_cluster_ip(service) and _has_cluster_ip(before):
        families = service.ip_families or before.ip_families
        kept = tuple(address for address in before.cluster_ips if Family.of(address) in families)
        service = replace(service, cluster_ips=service.cluster_ips or kept)
    if service.type in NODE_PORT_TYPES and before.type in NODE_PORT_TYPES:
        service = replace(service, ports=_ports(service, before))
    if needs_health_check(service) and needs_health_check(before):
        service = replace(
            service, health_check_node_port=service.health_check_node_port or before.health_check_node_port
        )
    if service.type is before.type and not service.load_balancer_ingress:
        service = replace(service, load_balancer_ingress=before.load_balancer_ingress)
    return service


def _has_cluster_ip(service: Service) -> bool:
    return service.type is not ServiceType.EXTERNAL_NAME and not service.headless


def _ports(service: Service, before: Service) -> tuple[ServicePort, ...]:
    """The ports, each with the former node port of its name, unless another port has that number already."""
    had = {port.name: port.node_port for port in before.ports}
    used = {port.node_port for port in before.ports} & {port.node_port for port in service.ports}
    ports = []
    for port in service.ports:
        number = port.node_port
        if not number and had.get(port.name, 0) not in used:
            number = had.get(port.name, 0)
            used.add(number)
        ports.append(replace(port, node_port=number))
    return tuple(ports)


class Pool(Struct, frozen=True):
    """The networks from which the load balancer ``name`` assigns addresses."""

    name: str
    networks: tuple[IPNetwork, ...]


def give_ingress(services: Sequence[Service], pools: Sequence[Pool]) -> tuple[Service, ...]:
    """Give every Service of type LoadBalancer an address for each of its families.

    Addresses in ``status.loadBalancer`` stay, and no other Service gets them. A hostname there stands for the addresses
    that the Service gets. The first pool with a free address of a
    family gives the next one, so that the same Services always get the same addresses. The Services are in the order of
    assignment, with their IP families settled. Without pools none gets an address.

    Raises:
        ScenarioError: with a line for each Service without an address, if some pool has addresses of its family.
    """
    held = {each for service in services for entry in service.load_balancer_ingress for each in entry.addresses}
    families = dict.fromkeys(Family.of(network) for pool in pools for network in pool.networks)
    free = {family: (each for each in _addresses(pools, family) if each not in held) for family in families}
    problems: list[str] = []
    given = tuple(_with_ingress(service, free, pools, problems) for service in services)
    if problems:
        raise ScenarioError(problems)
    return given


def _with_ingress(
    service: Service, free: Mapping[Family, Iterator[IPAddress]], pools: Sequence[Pool], problems: list[str]
) -> Service:
    known = service.load_balancer_ingress
    if service.type is not ServiceType.LOAD_BALANCER or any(entry.addresses for entry in known):
        return service
    found: list[IPAddress] = []
    for family in service.ip_families:
        if family not in free:
            continue
        address = next(free[family], None)
        if address is None:
            names = ", ".join(pool.name for pool in pools)
            problems.append(
                f"Service {service.namespace}/{service.name}: no {family} address is left in the pools of "
                f"spec.loadBalancers ({names}); give them larger ones"
            )
        else:
            found.append(address)
    if known:
        entries = tuple(replace(each, behind=tuple(found)) for each in known)
    else:
        entries = tuple(LoadBalancerIngress(ip=address) for address in found)
    return replace(service, load_balancer_ingress=entries)


def _addresses(pools: Iterable[Pool], family: Family) -> Iterator[IPAddress]:
    """Each pool's host addresses; every address of a pool of one or two."""
    for network in (network for pool in pools for network in pool.networks if Family.of(network) is family):
        alone = network.num_addresses <= 2
        last = network.num_addresses if alone or network.version == 6 else network.num_addresses - 1
        yield from (network[number] for number in range(0 if alone else 1, last))
