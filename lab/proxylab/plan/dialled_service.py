"""``DialledService``: the Service behind what a probe dials, as the API server has it when the probe is sent.

No verdict rests on it. It holds the settings of Kubernetes that explain one: policies, selectors, readiness, networks.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import Endpoint, EndpointSlice, Pod, Service, ServicePort, TrafficPolicy
from proxylab.cluster.slices import slices_of
from proxylab.encoding import Record
from proxylab.plan.cluster_timeline import ClusterMoment
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.words import Frontend


class DialledService(Record, frozen=True, kw_only=True):
    """One Service, the port of it that a probe dials, and all that decides which endpoints a node uses for it.

    Attributes:
        via: the frontend that the probe dials.
        slices: of the Service.
        pods: of its namespace.
        elsewhere: a pod of another namespace that its selector would match, if there is one.
        nodes: the names of the Node objects.
        proxy: the configuration of every proxy.
    """

    service: Service
    port: ServicePort
    family: Family
    via: Frontend
    slices: tuple[EndpointSlice, ...]
    pods: tuple[Pod, ...]
    nodes: tuple[str, ...]
    elsewhere: tuple[Pod, ...] = ()
    proxy: ProxyConfiguration = ProxyConfiguration()

    @property
    def is_internal(self) -> bool:
        """Whether ``internalTrafficPolicy`` applies; otherwise ``externalTrafficPolicy`` does."""
        return self.via is Frontend.CLUSTER_IP

    @property
    def policy(self) -> tuple[str, TrafficPolicy]:
        """The traffic policy that applies, with the name of its key."""
        if self.is_internal:
            return "internalTrafficPolicy", self.service.internal_traffic_policy
        return "externalTrafficPolicy", self.service.external_traffic_policy

    @property
    def selector(self) -> str:
        """The selector as kubectl writes it: ``app=web,tier=front``; empty without one."""
        return ",".join(f"{key}={value}" for key, value in self.service.selector.items())

    @property
    def selected(self) -> list[Pod]:
        """The pods that the selector matches."""
        wanted = self.service.selector.items()
        return [pod for pod in self.pods if wanted and wanted <= pod.labels.items()]

    @property
    def endpoints(self) -> list[Endpoint]:
        """The endpoints of the dialled port, in the dialled family."""
        return list(self._endpoints())

    def _endpoints(self) -> Iterator[Endpoint]:
        for found in self.slices:
            ports = ((each.name, each.protocol) for each in found.ports)
            if found.address_type is self.family and (self.port.name, self.port.protocol) in ports:
                yield from found.endpoints

    @property
    def usable(self) -> list[Endpoint]:
        """The endpoints that get new connections: the ready ones; without any, those that terminate and still serve."""
        return _usable(self.endpoints)

    def usable_on(self, node: str) -> list[Endpoint]:
        """The endpoints that a node uses under policy Local."""
        return _usable([each for each in self.endpoints if each.node_name == node])

    def named(self, endpoint: Endpoint) -> str:
        """The endpoint by the name of its pod, or else by its address."""
        pod = self.pod_at(endpoint.addresses[0])
        return endpoint.target or (pod.name if pod else str(endpoint.addresses[0]))

    def pod_at(self, address: IPAddress) -> Pod | None:
        """The pod of the Service's namespace with that address."""
        return next((pod for pod in self.pods if address in pod.addresses), None)


def _usable(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    ready = [each for each in endpoints if each.ready]
    return ready or [each for each in endpoints if each.serving and each.terminating]


def dialled_service(cluster: ClusterMoment, resolved: ResolvedProbe) -> DialledService | None:
    """The Service that a resolved probe dials; ``None`` where it dials none."""
    name, _, port_name = resolved.service_port.partition(":")
    service = next((each for each in cluster.services if f"{each.namespace}/{each.name}" == name), None)
    if service is None:
        return None
    port = next((each for each in service.ports if each.name == port_name), None)
    if port is None:
        return None
    addresses = addresses_by_frontend(service)
    return DialledService(
        service=service,
        port=port,
        family=Family.of(resolved.destination),
        via=next((via for via, own in addresses.items() if resolved.destination in own), Frontend.NODE_PORT),
        slices=slices_of(service, cluster.objects),
        pods=tuple(pod for pod in cluster.pods.values() if pod.namespace == service.namespace),
        nodes=tuple(cluster.nodes),
        elsewhere=tuple(islice((pod for pod in cluster.pods.values() if _is_elsewhere(service, pod)), 1)),
        proxy=cluster.scenario.proxy or ProxyConfiguration(),
    )


def _is_elsewhere(service: Service, pod: Pod) -> bool:
    return (
        pod.namespace != service.namespace and bool(service.selector) and service.selector.items() <= pod.labels.items()
    )
