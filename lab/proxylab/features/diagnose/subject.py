"""The diagnosed Service: its frontends, its endpoints, and which of them a node must use.

Owns ``DiagnosedService`` and ``FrontendAddress``, made from the objects alone, so that rules and packets can be
compared with them. ``proxylab.oracle.choice`` knows which endpoints a node must use.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import (
    SERVICE_PROXY_NAME_LABEL,
    ZONE_LABEL,
    Endpoint,
    EndpointSlice,
    KubeObject,
    Node,
    Pod,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.cluster.slices import slices_of
from proxylab.evidence.words import endpoint
from proxylab.oracle.choice import candidates_of, choose
from proxylab.oracle.setting import ProxySetting
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.words import Frontend

Backend = tuple[IPAddress, int]
"""The address and port of an endpoint."""


class EndpointOfPort(NamedTuple):
    """An endpoint of one port of a Service, with its number for that port."""

    endpoint: Endpoint
    number: int
    port: ServicePort


class FrontendAddress(Struct, frozen=True, kw_only=True):
    """One frontend: an address and port number that clients dial. A node port has no address."""

    via: Frontend
    address: IPAddress | None
    port_number: int
    port: ServicePort
    family: Family

    @property
    def is_internal(self) -> bool:
        """Whether ``internalTrafficPolicy`` applies to it."""
        return self.via is Frontend.CLUSTER_IP

    def __str__(self) -> str:
        where = str(self.port_number) if self.address is None else endpoint(self.address, self.port_number)
        return f"{_FRONTEND_NAMES[self.via]} {where}/{self.port.protocol}"


_FRONTEND_NAMES = {
    Frontend.CLUSTER_IP: "cluster IP",
    Frontend.NODE_PORT: "node port",
    Frontend.EXTERNAL_IP: "external IP",
    Frontend.LOAD_BALANCER_IP: "load-balancer IP",
}


class DiagnosedService(Struct, frozen=True, kw_only=True):
    """One Service among the objects of a lab.

    Attributes:
        families: the families of the lab that the Service has.
        setting: the proxy of every node.
    """

    service: Service
    slices: tuple[EndpointSlice, ...]
    pods: tuple[Pod, ...]
    nodes: tuple[Node, ...]
    families: tuple[Family, ...]
    setting: ProxySetting

    @classmethod
    def of(
        cls, service: Service, objects: Iterable[KubeObject], families: Sequence[Family], setting: ProxySetting
    ) -> "DiagnosedService":
        """Pick the objects that concern the Service."""
        everything = tuple(objects)
        return cls(
            service=service,
            slices=slices_of(service, everything),
            pods=tuple(each for each in everything if isinstance(each, Pod)),
            nodes=tuple(each for each in everything if isinstance(each, Node)),
            families=tuple(each for each in families if not service.ip_families or each in service.ip_families),
            setting=setting,
        )

    @property
    def why_no_rules(self) -> str:
        """Why no proxy makes a rule for it, as a clause; empty where one does."""
        if self.service.type is ServiceType.EXTERNAL_NAME:
            return "an ExternalName Service is only a DNS name"
        if self.service.headless:
            return "a headless Service has no frontend: clients dial its pods"
        return ""

    @property
    def other_proxy(self) -> str:
        """The other proxy that the Service's label names; empty without that label."""
        return self.service.labels.get(SERVICE_PROXY_NAME_LABEL, "")

    @property
    def frontends(self) -> tuple[FrontendAddress, ...]:
        """All frontends of all ports, family by family."""
        return tuple(
            frontend for family in self.families for port in self.service.ports for frontend in self._of(family, port)
        )

    def _of(self, family: Family, port: ServicePort) -> Iterator[FrontendAddress]:
        service = self.service
        if service.headless or not any(Family.of(each) is family for each in service.cluster_ips):
            return
        for via, all_of_them in addresses_by_frontend(service, claimed=True).items():
            for address in all_of_them:
                if Family.of(address) is family:
                    yield FrontendAddress(via=via, address=address, port_number=port.port, port=port, family=family)
        if port.node_port:
            yield FrontendAddress(
                via=Frontend.NODE_PORT, address=None, port_number=port.node_port, port=port, family=family
            )

    def expected(self, frontend: FrontendAddress, node: str, *, from_outside: bool = True) -> tuple[Backend, ...]:
        """The endpoints that a node must use for packets to a frontend.

        ``externalTrafficPolicy: Local`` applies to clients from outside: pods and nodes may use all endpoints.
        """
        policy = self.service.internal_traffic_policy if frontend.is_internal else self.service.external_traffic_policy
        local = policy is TrafficPolicy.LOCAL and (frontend.is_internal or from_outside)
        return self.local(frontend, node) if local else self.everywhere(frontend, node)

    def everywhere(self, frontend: FrontendAddress, node: str) -> tuple[Backend, ...]:
        """The endpoints that a node uses under policy Cluster, by hints where these count."""
        return self._used(frontend, node, TrafficPolicy.CLUSTER)

    def local(self, frontend: FrontendAddress, node: str) -> tuple[Backend, ...]:
        """The endpoints that a node uses under policy Local."""
        return self._used(frontend, node, TrafficPolicy.LOCAL)

    def _used(self, frontend: FrontendAddress, node: str, policy: TrafficPolicy) -> tuple[Backend, ...]:
        labels = next((each.labels for each in self.nodes if each.name == node), {})
        choice = choose(
            self.service,
            candidates_of(frontend.port, frontend.family, self.slices),
            self.setting,
            node=node,
            zone=labels.get(ZONE_LABEL, ""),
            is_local=policy is TrafficPolicy.LOCAL,
        )
        return tuple((each.address, each.port) for each in choice.chosen)

    def endpoints(self) -> Iterator[EndpointOfPort]:
        """Every endpoint of every port of the Service."""
        for port in self.service.ports:
            for found in self.slices:
                for own in found.ports:
                    if found.address_type in self.families and (own.name, own.protocol) == (port.name, port.protocol):
                        yield from (EndpointOfPort(each, own.port, port) for each in found.endpoints)

    def pod_at(self, address: IPAddress) -> Pod | None:
        """The pod with this address; ``None`` if it is a node's."""
        if any(address in node.addresses for node in self.nodes):
            return None
        return next((pod for pod in self.pods if address in pod.addresses), None)

    def is_of_node(self, address: IPAddress) -> bool:
        """Whether an endpoint has the address of a node, and is not a pod in the node's network."""
        return any(address in node.addresses for node in self.nodes) and not any(self._targets(address))

    def name_of_address(self, address: IPAddress) -> str:
        """The name of an endpoint's pod, or else its address."""
        return next(self._targets(address), "") or str(address)

    def name_of(self, backend: Backend) -> str:
        """The name of an endpoint's pod, if it has one, and its address."""
        target = next(self._targets(backend[0]), "")
        return f"{target} ({endpoint(*backend)})" if target else endpoint(*backend)

    def _targets(self, address: IPAddress) -> Iterator[str]:
        """The pods of the endpoints with an address; an empty name for one that is no pod's."""
        return (each.endpoint.target for each in self.endpoints() if each.endpoint.addresses[0] == address)
