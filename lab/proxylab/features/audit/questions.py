"""The questions of an audit: every frontend of every Service from every kind of sender, and what lies beside.

A question is a probe without ``expect``, so the oracle judges it. It sends as many flows as reach every endpoint, by
packets; one flow is a connection, except over SCTP, whose sockets few machines have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, Transport
from proxylab.cluster.objects import EndpointSlice, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.evidence.words import endpoint
from proxylab.features.audit.senders import SenderKind, Senders
from proxylab.oracle.choice import candidates_of
from proxylab.plan.host_ports import HostPort
from proxylab.plan.model import Plan
from proxylab.scenario.expect import PROMISED
from proxylab.scenario.probes import AddressTarget, PodTarget, Probe, Send, ServiceTarget, Source, Target
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.words import Frontend, Manner, PodWay, Position
from proxylab.statistics import flows_to_hit_all, flows_to_stick

BESIDE: Final = "beside"
"""In place of a frontend: an unused port, an unassigned address, an echo request."""

_UNUSED_PORTS: Final = range(9, 1024)
"""Where to look for a port that a Service does not have; 9 is for discarded data (RFC 863)."""


class AuditQuestion(Struct, frozen=True, kw_only=True):
    """One question: a row and a column of the table, and the probe that asks it.

    Attributes:
        service: NAMESPACE/NAME; empty for what concerns no Service.
        frontend: what is dialled, in words.
        kind: of the sender.
        probe: what is sent.
    """

    service: str
    frontend: str
    kind: SenderKind
    probe: Probe


class _Asking(Struct, frozen=True):
    """A sender of one kind, and the node whose rules it meets first."""

    kind: SenderKind
    name: str
    node: str


class _Dialled(Struct, frozen=True, kw_only=True):
    """One frontend of a Service's port in one family. ``own_nodes`` have an endpoint, and ``pods`` are endpoints."""

    service: Service
    port: ServicePort
    via: Frontend
    address: IPAddress | None
    family: Family
    endpoints: int
    own_nodes: tuple[str, ...]
    pods: tuple[tuple[str, str], ...]

    def target(self, node: str | None) -> Target:
        """What a probe dials, by way of that node."""
        return ServiceTarget(
            service=self.service.name,
            namespace=self.service.namespace,
            port=None if self.via is Frontend.HEALTH_CHECK_NODE_PORT else self.port.name or self.port.port,
            via=self.via,
            node=node,
            address=self.address,
            family=None if self.address is not None else self.family,
        )

    @property
    def words(self) -> str:
        """What is dialled, for the table."""
        if self.via is Frontend.HEALTH_CHECK_NODE_PORT:
            return f"{self.via} {self.service.health_check_node_port}"
        if self.via is Frontend.NODE_PORT:
            of = f" ({self.family})" if len(self.service.cluster_ips) > 1 else ""
            of = of if self.address is None else f" at {self.address}"
            return f"{self.via} {self.port.node_port}/{self.port.protocol}{of}"
        at = "" if self.address is None else endpoint(self.address, self.port.port)
        return f"{self.via} {at}/{self.port.protocol}"

    @property
    def send(self) -> Send:
        """Enough flows to reach every endpoint."""
        if self.via is Frontend.HEALTH_CHECK_NODE_PORT:
            return Send(protocol=Transport.TCP)
        sticky = self.service.affinity_timeout is not None
        count = max(self.endpoints, 1)
        flows = 1 if count == 1 else flows_to_stick(count) if sticky else flows_to_hit_all(count)
        by_packets = flows > 1 or self.port.protocol is Protocol.SCTP
        return Send(
            protocol=Transport(self.port.protocol), manner=Manner.PACKET if by_packets else Manner.CONNECT, flows=flows
        )


class Asker:
    """Writes the questions about the Services of one moment.

    Args:
        services: with everything allocated.
        slices: all of the cluster.
        plan: the network.
        senders: who may send.
        families: of the network.
        service_networks: those of cluster IPs.
        host_ports: those of the pods that are there.
        file: where the questions come from, for their positions.
    """

    def __init__(
        self,
        *,
        services: Sequence[Service],
        slices: Iterable[EndpointSlice],
        plan: Plan,
        senders: Senders,
        families: Sequence[Family],
        service_networks: Iterable[IPNetwork],
        host_ports: Iterable[HostPort] = (),
        file: str,
    ) -> None:
        self._services, self._senders, self._families = services, senders, families
        self._slices: dict[tuple[str, str], list[EndpointSlice]] = {}
        for each in slices:
            self._slices.setdefault((each.namespace, each.service), []).append(each)
        self._pods_at = {address: (pod.name, pod.node) for pod in plan.pods for address in pod.addresses}
        self._own = {pod for pods in senders.pods.values() for pod in pods}
        self._networks = tuple(service_networks)
        forwarders = {pod.name for pod in plan.pods if pod.forwards}
        named = ((each, each.pod.rpartition("/")[2]) for each in host_ports)
        self._host_ports = [(each, pod) for each, pod in named if pod not in forwarders]
        self._position = Position(file, 1, 1)

    def questions(self) -> Iterator[AuditQuestion]:
        """All questions, Service by Service."""
        for service in self._services:
            for dialled in self._frontends(service):
                yield from self._of(dialled)
            yield from self._beside(service)
        yield from self._unassigned()
        for led, pod in self._host_ports:
            yield from self._at_host_port(led, pod)

    @property
    def undialled(self) -> Mapping[str, str]:
        """The Services without a frontend, each with the reason."""
        return {
            f"{each.namespace}/{each.name}": "a headless Service has no frontend: clients dial its pods"
            if each.headless
            else "an ExternalName Service is only a DNS name"
            for each in self._services
            if each.headless or each.type is ServiceType.EXTERNAL_NAME
        }

    def _frontends(self, service: Service) -> Iterator[_Dialled]:
        if service.headless or service.type is ServiceType.EXTERNAL_NAME:
            return
        of_family = [family for family in self._families if any(Family.of(ip) is family for ip in service.cluster_ips)]
        for port in service.ports:
            for family in of_family:
                made = self._dialled(service, port, family)
                for via, addresses in addresses_by_frontend(service).items():
                    for address in (each for each in addresses if Family.of(each) is family):
                        yield replace(made, via=via, address=address)
                if port.node_port:
                    yield replace(made, via=Frontend.NODE_PORT, address=None)
        is_local = service.external_traffic_policy is TrafficPolicy.LOCAL
        if service.health_check_node_port and is_local and service.ports and of_family:
            made = self._dialled(service, service.ports[0], of_family[0])
            yield replace(made, via=Frontend.HEALTH_CHECK_NODE_PORT, address=None)

    def _dialled(self, service: Service, port: ServicePort, family: Family) -> _Dialled:
        own = self._slices.get((service.namespace, service.name), ())
        found = [each for each in candidates_of(port, family, own) if each.endpoint.ready]
        pods = dict.fromkeys(self._pods_at[each.address] for each in found if each.address in self._pods_at)
        return _Dialled(
            service=service,
            port=port,
            via=Frontend.CLUSTER_IP,
            address=None,
            family=family,
            endpoints=len({(each.address, each.port) for each in found}),
            own_nodes=tuple(dict.fromkeys(each.endpoint.node_name for each in found if each.endpoint.node_name)),
            pods=tuple(pods),
        )

    def _of(self, dialled: _Dialled) -> Iterator[AuditQuestion]:
        senders, of_nodes = self._senders, dialled.via in (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)
        if dialled.via is not Frontend.HEALTH_CHECK_NODE_PORT:
            for asking in self._inside(dialled):
                yield self._question(dialled, asking, by_node=of_nodes)
        by_node = [_Asking(SenderKind.OUTSIDE, host, node) for host in senders.outside[:1] for node in senders.nodes]
        if dialled.via is Frontend.NODE_PORT:
            first = senders.nodes[0]
            by_node += [_Asking(SenderKind.NEIGHBOUR, host, first) for host in senders.neighbours[:1]]
            by_node += [_Asking(SenderKind.LOOPBACK, first, first)] if dialled.family is Family.IPV4 else []
        for asking in by_node:
            yield self._question(dialled, asking, by_node=True)
        if dialled.via is Frontend.NODE_PORT:
            for node, addresses in senders.further.items():
                for address in (each for each in addresses if Family.of(each) is dialled.family):
                    at_another = replace(dialled, address=address)
                    yield self._question(at_another, _Asking(SenderKind.NODE, node, node), by_node=True)

    def _inside(self, dialled: _Dialled) -> Iterator[_Asking]:
        """One sender of each kind in the cluster; two nodes, if only some have an endpoint."""
        nodes, endpoints = self._senders.nodes, [name for name, _ in dialled.pods]
        without = [node for node in nodes if node not in dialled.own_nodes]
        for kind, there in ((SenderKind.NEAR, dialled.own_nodes), (SenderKind.FAR, without)):
            pod = self._senders.pod_on(there, endpoints)
            if pod is not None:
                node_of_pod = next(node for node, pods in self._senders.pods.items() if pod in pods)
                yield _Asking(kind, pod, node_of_pod)
        itself = next(((name, node) for name, node in dialled.pods if name in self._own), None)
        if itself is not None:
            yield _Asking(SenderKind.ENDPOINT, *itself)
        for node in [node for node in nodes if self._senders.host_pods.get(node)][:1]:
            yield _Asking(SenderKind.HOST_POD, self._senders.host_pods[node][0], node)
        for node in [*dialled.own_nodes[:1], *without[:1]]:
            yield _Asking(SenderKind.NODE, node, node)

    def _question(self, dialled: _Dialled, asking: _Asking, *, by_node: bool) -> AuditQuestion:
        service = f"{dialled.service.namespace}/{dialled.service.name}"
        port = f" {dialled.port.name}" if dialled.port.name else ""
        frontend = dialled.words
        at = f" at {asking.node}" if by_node else ""
        is_loopback = asking.kind is SenderKind.LOOPBACK
        sender = f"{asking.name} by loopback" if is_loopback else asking.name
        return AuditQuestion(
            service=service,
            frontend=frontend,
            kind=asking.kind,
            probe=self._probe(
                f"{_title(service)}{port}: {_title(frontend)} from {sender}{at}",
                Source(name=asking.name, loopback=is_loopback),
                dialled.target(asking.node if by_node else None),
                dialled.send,
            ),
        )

    def _probe(self, name: str, source: Source, target: Target, send: Send) -> Probe:
        expect = replace(PROMISED, position=self._position)
        return Probe(name=name, source=source, target=target, send=send, expect=expect, position=self._position)

    def _beside(self, service: Service) -> Iterator[AuditQuestion]:
        """An unused port and an echo request at each cluster IP, from a pod and from a node."""
        if service.headless or service.type is ServiceType.EXTERNAL_NAME:
            return
        name = f"{service.namespace}/{service.name}"
        unused = next(port for port in _UNUSED_PORTS if all(port != each.port for each in service.ports))
        for address in (each for each in service.cluster_ips if Family.of(each) in self._families):
            for kind, sender in self._plain_senders():
                for frontend, port, protocol in (
                    (f"{BESIDE}: unused port {endpoint(address, unused)}/TCP", unused, Transport.TCP),
                    (f"{BESIDE}: echo request to {address}", None, Transport.ICMP),
                ):
                    yield self._aside(name, frontend, kind, sender, AddressTarget(address=address, port=port), protocol)

    def _unassigned(self) -> Iterator[AuditQuestion]:
        """An address of each network of cluster IPs that no Service has."""
        taken = {address for each in self._services for address in each.cluster_ips}
        for network in self._networks:
            from_the_end: Iterator[IPAddress] = (network[-number] for number in range(2, 66))
            free = next((each for each in from_the_end if each not in taken), None)
            if free is None:
                continue
            for kind, sender in self._plain_senders():
                frontend = f"{BESIDE}: unassigned address {endpoint(free, 80)}/TCP"
                yield self._aside("", frontend, kind, sender, AddressTarget(address=free, port=80), Transport.TCP)

    def _at_host_port(self, led: HostPort, pod: str) -> Iterator[AuditQuestion]:
        """A host port from each kind of sender; one at a loopback address from its node alone."""
        senders = self._senders
        others = [node for node in senders.nodes if node != led.node]
        asked: list[tuple[SenderKind, str | None]] = [(SenderKind.NODE, led.node)]
        if led.at is None or not led.at.is_loopback:
            asked += [
                (SenderKind.NEAR, senders.pod_on((led.node,), (pod,))),
                (SenderKind.FAR, senders.pod_on(others, ())),
                (SenderKind.OUTSIDE, next(iter(senders.outside), None)),
            ]
        frontend = f"{PodWay.HOST_PORT} {led.port}/{led.protocol} of {pod}"
        if len(self._families) > 1:
            frontend += f" ({Family.of(led.address)})"
        target = PodTarget(pod=pod, via=PodWay.HOST_PORT, port=led.pod_port, family=Family.of(led.address))
        manner = Manner.PACKET if led.protocol is Protocol.SCTP else Manner.CONNECT
        for kind, sender in asked:
            if sender is not None:
                name = f"{_title(frontend)} from {sender}"
                send = Send(protocol=Transport(led.protocol), manner=manner, flows=1)
                probe = self._probe(name, Source(name=sender), target, send)
                yield AuditQuestion(service="", frontend=frontend, kind=kind, probe=probe)

    def _aside(
        self, service: str, frontend: str, kind: SenderKind, sender: str, target: AddressTarget, protocol: Transport
    ) -> AuditQuestion:
        name = f"{_title(service)}: {_title(frontend)} from {sender}".removeprefix(": ")
        send = Send(protocol=protocol, manner=Manner.PACKET, flows=1)
        return AuditQuestion(
            service=service, frontend=frontend, kind=kind, probe=self._probe(name, Source(name=sender), target, send)
        )

    def _plain_senders(self) -> Iterator[tuple[SenderKind, str]]:
        pod = self._senders.pod_on(self._senders.nodes, ())
        if pod is not None:
            yield SenderKind.NEAR, pod
        yield SenderKind.NODE, self._senders.nodes[0]


def _title(text: str) -> str:
    """A text without what separates the parts of pytest's ids."""
    return text.replace("::", ":").replace("/", " ")
