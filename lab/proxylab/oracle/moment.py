"""``Moment``: a cluster at one moment, indexed by what a packet can be asked about.

It knows the frontends of Services by address and port, the endpoints behind them, the machines by address, and what
listens where. It decides nothing: ``choice``, ``masquerade`` and ``flows`` do.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    ZONE_LABEL,
    EndpointSlice,
    Node,
    Service,
    ServicePort,
    ServiceType,
)
from proxylab.encoding import Record
from proxylab.oracle.choice import Candidate, candidates_of
from proxylab.oracle.setting import ProxySetting
from proxylab.plan.dialling import DialledPort
from proxylab.plan.host_ports import HostPort
from proxylab.plan.model import Listener, Plan, PlannedNamespace, Role
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Frontend

_KNOWS_IP_MODE: Final[Version] = (1, 30)
_REVERSE_PATH: Final = "net.ipv4.conf.{}.rp_filter"
_BRIDGED: Final = {
    Family.IPV4: "net.bridge.bridge-nf-call-iptables",
    Family.IPV6: "net.bridge.bridge-nf-call-ip6tables",
}


class ServedPort(Record, frozen=True):
    """A port of a Service at one of its frontends."""

    via: Frontend
    service: Service
    port: ServicePort

    @property
    def is_external(self) -> bool:
        """Whether ``externalTrafficPolicy`` applies, and not ``internalTrafficPolicy``."""
        return self.via is not Frontend.CLUSTER_IP


def is_proxied(service: Service) -> bool:
    """Whether proxies handle the Service at all."""
    return not _left_alone(service)


def _left_alone(service: Service) -> str:
    """The row by which proxies do not handle the Service; empty if they do."""
    if service.type is ServiceType.EXTERNAL_NAME or service.headless:
        return "no-frontend"
    if SERVICE_PROXY_NAME_LABEL in service.labels:
        return "of-another-proxy"
    return "labelled-headless" if HEADLESS_LABEL in service.labels else ""


HOST_PORT_ORDER: Final = "host-port-beside-frontends"
HOST_PORT_FIRST: Final = "first"
"""The subject of the rows about ports that a proxy serves as well, and what they say where host ports come first."""


class Moment:
    """The objects, the network and the proxy at one moment.

    Args:
        services: with everything allocated.
        slices: all of the cluster.
        nodes: the Node objects.
        plan: the network.
        setting: the proxy of every node but those in ``settings``.
        settings: the proxies of nodes that differ, as during an upgrade, by the names of the nodes.
        pod_networks: the networks of all pods, which are the cluster CIDRs of a proxy without any of its own.
        service_networks: those of the ServiceCIDR objects.
        gone: deleted pods, by the names of their namespaces: nothing there answers.
        balanced: addresses whose load balancer leaves out unhealthy nodes, as the routes of the plan have it.
        narrowed: pools whose load balancer leaves out nodes that their label excludes, as those routes have it.
        host_ports: those of the pods that are there.
        dialled: what load balancers dial that dial node ports.
    """

    def __init__(
        self,
        *,
        services: Sequence[Service],
        slices: Iterable[EndpointSlice],
        nodes: Iterable[Node],
        plan: Plan,
        setting: ProxySetting,
        settings: Mapping[str, ProxySetting] | None = None,
        pod_networks: Collection[IPNetwork] = (),
        service_networks: Collection[IPNetwork] = (),
        gone: Collection[str] = (),
        balanced: Collection[IPAddress] = (),
        narrowed: Collection[IPNetwork] = (),
        host_ports: Iterable[HostPort] = (),
        dialled: Iterable[DialledPort] = (),
    ) -> None:
        self.plan: Final = plan
        self._setting: Final = setting
        self._settings: Final = dict(settings or {})
        self.gone: Final = frozenset(gone)
        self.balanced: Final = frozenset(balanced)
        self.narrowed: Final = tuple(narrowed)
        self._host_ports: Final = tuple(host_ports)
        self._dialled: Final = {(each.address, each.port, each.protocol): each for each in dialled}
        self.nodes: Final[Mapping[str, Node]] = {node.name: node for node in nodes}
        self.machines: Final[Mapping[str, PlannedNamespace]] = {each.name: each for each in plan.namespaces}
        self.services: Final[Mapping[tuple[str, str], Service]] = {
            (each.namespace, each.name): each for each in services
        }
        self.service_networks: Final = tuple(service_networks)
        self._pod_networks: Final = tuple(pod_networks)
        self._slices: defaultdict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
        for each in slices:
            self._slices[each.namespace, each.service].append(each)
        self._candidates: dict[tuple[str, str, str, Protocol, Family], tuple[Candidate, ...]] = {}
        self._frontends: defaultdict[tuple[IPAddress, int, Protocol], list[ServedPort]] = defaultdict(list)
        self._node_ports: defaultdict[tuple[Family, int, Protocol], list[ServedPort]] = defaultdict(list)
        self.cluster_ips: Final[set[IPAddress]] = set()
        self._left_alone: Final[dict[IPAddress, str]] = {}
        self._of_balancers: Final[set[IPAddress]] = set()
        for service in services:
            if why := _left_alone(service):
                for addresses in addresses_by_frontend(service).values():
                    self._left_alone.update(dict.fromkeys(addresses, why))
            else:
                self._add(service)
        self._owners: defaultdict[IPAddress, list[str]] = defaultdict(list)
        self._listeners: defaultdict[tuple[str, Protocol, int], list[Listener]] = defaultdict(list)
        for machine in plan.namespaces:
            for address in machine.addresses:
                self._owners[address.interface.ip].append(machine.name)
            for listener in machine.listeners:
                self._listeners[machine.name, listener.protocol, listener.port].append(listener)
        self._known_sysctls: dict[str, Mapping[str, str]] = {}
        self._pods_at: Final = {address: pod.name for pod in plan.pods for address in pod.addresses}

    def _add(self, service: Service) -> None:
        families = frozenset(service.ip_families) or {Family.of(each) for each in service.cluster_ips}
        self.cluster_ips.update(service.cluster_ips)
        ingress = (each for each in service.load_balancer_ingress if not each.is_claimed)
        self._of_balancers.update(address for each in ingress for address in each.addresses)
        for via, addresses in addresses_by_frontend(service, claimed=True).items():
            for address in addresses:
                if Family.of(address) in families:
                    for port in service.ports:
                        self._frontends[address, port.port, port.protocol].append(ServedPort(via, service, port))
        for port in service.ports:
            if port.node_port:
                for family in families:
                    served = ServedPort(Frontend.NODE_PORT, service, port)
                    self._node_ports[family, port.node_port, port.protocol].append(served)

    def setting_of(self, node: str) -> ProxySetting:
        """The proxy of a node."""
        return self._settings.get(node, self._setting)

    @property
    def modes(self) -> frozenset[Mode]:
        """The modes of all proxies."""
        nodes = (name for name, machine in self.machines.items() if machine.role is Role.NODE)
        return frozenset(self.setting_of(node).mode for node in nodes)

    def cluster_cidrs(self, node: str) -> Collection[IPNetwork]:
        """The cluster CIDRs that the proxy of a node knows."""
        configured = self.setting_of(node).configuration.cluster_cidrs
        return self._pod_networks if configured is None else configured

    def undecided_at(self, node: str, address: IPAddress) -> str:
        """Why no row decides whether a node leaves an address of a load balancer alone; empty if one does."""
        knows = self.setting_of(node).version >= _KNOWS_IP_MODE
        return "" if knows or address not in self._of_balancers else "before 1.30 a feature gate decides about ipMode"

    def left_alone(self, address: IPAddress) -> str:
        """The row by which nodes leave an address of a Service alone; empty where they do not."""
        return "ip-mode-proxy" if address in self._of_balancers else self._left_alone.get(address, "")

    def at_address(self, address: IPAddress, port: int, protocol: Protocol) -> Sequence[ServedPort]:
        """The ports of Services at an address of their own; several only if Services contradict each other."""
        return self._frontends.get((address, port, protocol), ())

    def at_node_port(self, family: Family, port: int, protocol: Protocol) -> Sequence[ServedPort]:
        """The ports of Services behind a node port."""
        return self._node_ports.get((family, port, protocol), ())

    def candidates(self, served: ServedPort, family: Family) -> tuple[Candidate, ...]:
        """All endpoints of a Service's port in a family, usable or not."""
        service, port = served.service, served.port
        key = service.namespace, service.name, port.name, port.protocol, family
        if key not in self._candidates:
            self._candidates[key] = candidates_of(port, family, self.slices_of(service))
        return self._candidates[key]

    def slices_of(self, service: Service) -> Sequence[EndpointSlice]:
        return self._slices.get((service.namespace, service.name), ())

    def zone_of(self, node: str) -> str:
        """The zone of a node by its label; empty without one."""
        return self.nodes[node].labels.get(ZONE_LABEL, "") if node in self.nodes else ""

    def primary_address(self, node: str, family: Family) -> IPAddress | None:
        """The address of a node that proxies take for its own: ``bindAddress``, or the Node object's first one."""
        bound = self.setting_of(node).configuration.bind_address
        known = self.nodes[node].addresses if node in self.nodes else ()
        own = known if bound is None or bound.is_unspecified else (bound, *known)
        return next((each for each in own if Family.of(each) is family), None)

    def is_node(self, machine: str) -> bool:
        """Whether that is a node, which has a proxy."""
        return self.machines[machine].role is Role.NODE

    def owners(self, address: IPAddress) -> Sequence[str]:
        """The machines that have the address."""
        return self._owners.get(address, ())

    def has(self, machine: str, address: IPAddress) -> bool:
        """Whether packets for the address end in that machine."""
        return address.is_loopback or machine in self._owners.get(address, ())

    def has_strict_reverse_path(self, machine: str, device: str) -> bool:
        """Whether the machine drops IPv4 packets whose way back leads out by another device (``rp_filter`` 1)."""
        known = self._sysctls(machine)
        of_device = known.get(_REVERSE_PATH.format(device), known.get(_REVERSE_PATH.format("default"), "0"))
        return max(known.get(_REVERSE_PATH.format("all"), "0"), of_device) == "1"

    def filters_bridges(self, node: str, family: Family) -> bool:
        """Whether packets that cross a bridge of the node pass its rules (br_netfilter)."""
        return self._sysctls(node).get(_BRIDGED[family], "1") == "1"

    def _sysctls(self, machine: str) -> Mapping[str, str]:
        if machine not in self._known_sysctls:
            there = self.machines[machine]
            self._known_sysctls[machine] = {each.name: each.value for each in (*there.sysctls, *there.device_sysctls)}
        return self._known_sysctls[machine]

    def host_port(self, node: str, address: IPAddress, port: int, protocol: Protocol) -> HostPort | None:
        """The host port by which a network plugin leads the port of a node at that address to a pod.

        The plugin takes for the node's own what the kernel does. Of several pods the newest has the port.
        """
        is_own = self.has(node, address) or (address.is_loopback and address.version == 4)
        if not is_own:
            return None
        found = (
            each
            for each in self._host_ports
            if (each.node, each.port, each.protocol) == (node, port, protocol)
            and each.address.version == address.version
            and each.at in (None, address)
        )
        return next(found, None)

    def dialled_at(self, address: IPAddress, port: int, protocol: Protocol) -> DialledPort | None:
        """The node ports that a balancer dials for a port of its address; ``None`` if it dials none."""
        return self._dialled.get((address, port, protocol))

    def passes_on(self, machine: str) -> bool:
        """Whether that is a pod which passes packets on by rules of its own."""
        return any(pod.namespace == machine and pod.forwards is not None for pod in self.plan.pods)

    def listener(self, machine: str, address: IPAddress, port: int, protocol: Protocol) -> Listener | None:
        """The program that listens at an address and port of a machine; ``None`` if none does."""
        for each in self._listeners.get((machine, protocol, port), ()):
            if each.address in (None, address) and machine not in self.gone:
                return each
        return None

    def name_at(self, machine: str, address: IPAddress) -> str:
        """The name of the pod, node or host that has the address there."""
        return machine if self.is_node(machine) else self._pods_at.get(address, machine)
