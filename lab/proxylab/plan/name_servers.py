"""DNS in a lab: the pods that serve names, every pod's /etc/resolv.conf, and the question of a probe that dials a name.

A scenario that uses names has the Service ``kube-dns``. By default its endpoint is a pod of the lab's own, which no
author can name and no report counts. If the author declares that Service, the pods that it selects serve names.
"""

from collections.abc import Iterable, Mapping, Sequence

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.cluster.kube_dns import COREDNS, DOMAIN, KUBE_DNS, NDOTS, resolv_conf, search_domains
from proxylab.cluster.objects import EndpointSlice, Service, ServiceType
from proxylab.oracle.weakest import endpoints_of_port, named_addresses, of_service
from proxylab.plan.model import Plan, Role
from proxylab.plan.resolved import Question, Sentinel
from proxylab.scenario.keys import refused
from proxylab.scenario.model import Scenario
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import ServiceTarget
from proxylab.scenario.targets import service_port


def has_own_server(scenario: Scenario) -> bool:
    """Whether the lab adds its own name server and the Service for it."""
    return scenario.has_names and _declared(scenario) is None


def serves_names(scenario: Scenario, group: PodGroup) -> bool:
    """Whether the pods of an entry serve names for a ``kube-dns`` that the author declares."""
    service = _declared(scenario) if scenario.has_names else None
    if service is None or not service.selector or group.namespace != service.namespace:
        return False
    return service.selector.items() <= group.labels.items()


def _declared(scenario: Scenario) -> Service | None:
    return next((service for service in scenario.services if service.key == KUBE_DNS), None)


def namespace_of_name_server(node: str) -> str:
    """The namespace of the lab's own name server on its node. No author's name can hold ``@``."""
    return f"{COREDNS}@{node}"


def name_servers(plan: Plan) -> tuple[Sentinel, ...]:
    """The name servers without the Service: an address of each family for each pod."""
    servers: dict[tuple[str, IPAddress], Sentinel] = {}
    for namespace in plan.namespaces:
        for listener in namespace.listeners:
            if listener.serves_names:
                own = [pod.addresses for pod in plan.pods if pod.name == listener.name] or [_own(plan, namespace.name)]
                for address in own[0]:
                    servers[listener.name, address] = Sentinel(name=listener.name, address=address)
    return tuple(servers.values())


def own_addresses(plan: Plan) -> tuple[IPAddress, ...]:
    """The addresses of the lab's own name server; empty if it has none."""
    pods = {pod.name for pod in plan.pods}
    return tuple(each.address for each in name_servers(plan) if each.name == COREDNS and each.name not in pods)


def _own(plan: Plan, namespace: str) -> tuple[IPAddress, ...]:
    addresses = (address.interface.ip for address in plan.namespace(namespace).addresses)
    return tuple(address for address in addresses if not address.is_link_local)


def own_devices(plan: Plan) -> frozenset[tuple[str, str]]:
    """The node's end of the link to the lab's own name server, by node and device."""
    homes = {
        namespace.name
        for namespace in plan.namespaces
        if any(listener.serves_names and listener.name == COREDNS for listener in namespace.listeners)
        and all(pod.namespace != namespace.name for pod in plan.pods)
    }
    return frozenset((link.first.namespace, link.first.device) for link in plan.links if link.second.namespace in homes)


def resolv_confs(scenario: Scenario, plan: Plan, services: Iterable[Service]) -> Mapping[str, str]:
    """The /etc/resolv.conf of each pod's own namespace; empty if the lab has no names.

    Nodes and outside hosts use other name servers than the cluster's, and a lab has none of those.
    """
    servers = next((service.cluster_ips for service in services if service.key == KUBE_DNS), ())
    if not scenario.has_names:
        return {}
    namespaces = {name: group.namespace for group in scenario.pods for name in group.pod_names}
    return {
        pod.namespace: resolv_conf(namespaces[pod.name], servers)
        for pod in plan.pods
        if plan.namespace(pod.namespace).role is Role.POD
    }


class Questions:
    """Makes the questions of one lab at one time, from its name servers, its slices and its families."""

    def __init__(
        self,
        plan: Plan,
        services: Sequence[Service],
        families: tuple[Family, ...],
        slices: Sequence[EndpointSlice],
        corefile: str,
    ) -> None:
        """``corefile`` is the author's for CoreDNS, or empty."""
        self._servers = name_servers(plan)
        kube_dns = next((service for service in services if service.key == KUBE_DNS), None)
        self._resolvers = () if kube_dns is None else kube_dns.cluster_ips
        self._answering = () if kube_dns is None else _answering(kube_dns, slices, self._servers)
        with_commands = {pod.name for pod in plan.pods if pod.commands}
        self._unnamed = bool(corefile) or any(each.name in with_commands for each in self._servers)
        self._families = families
        self._slices = slices

    def about(
        self,
        service: Service,
        target: ServiceTarget,
        probe_protocol: Transport | None,
        pod_namespace: str | None,
        addresses_by_name: Mapping[str, tuple[IPAddress, ...]],
    ) -> Question:
        """The question for a Service's name.

        ``probe_protocol`` is the one that the probe names, ``pod_namespace`` that of the pod that asks; other senders
        have none.

        Raises:
            RefusedError: the lab has no name server, or the Service has no such port.
        """
        self._require_name_server()
        port, protocol = _declared_port(service, target, probe_protocol)
        address = target.address
        families = [family for family in service.ip_families or self._families if family in self._families]
        if target.family is not None:
            families = [target.family]
        return Question(
            names=_names(service, pod_namespace),
            families=tuple(families) if address is None else (Family.of(address),),
            resolvers=self._resolvers,
            servers=self._servers,
            answering=self._answering,
            unnamed=self._unnamed,
            service=f"{service.namespace}/{service.name}",
            port=port,
            protocol=protocol,
            expected=self._expected(service),
            headless=service.headless,
            pods=addresses_by_name if service.headless else {},
            address=address,
        )

    def about_name(self, name: str, pod_namespace: str | None) -> Question:
        """The question of a program for any name, for addresses of all families.

        A name is absolute if it ends in a dot. ``pod_namespace`` is that of the pod that asks; other senders have none.
        Raises ``RefusedError``.
        """
        self._require_name_server()
        return Question(
            names=candidates(name, pod_namespace),
            families=self._families,
            resolvers=self._resolvers,
            servers=self._servers,
            answering=self._answering,
            unnamed=self._unnamed,
            service="",
            port=0,
            protocol=Transport.TCP,
        )

    def _expected(self, service: Service) -> tuple[IPAddress, ...] | None:
        """The addresses that the name must give; ``None`` for a name that is only another one's alias."""
        if service.type is ServiceType.EXTERNAL_NAME:
            return None
        own = named_addresses(service, self._slices) if service.headless else service.cluster_ips
        return tuple(each for each in own if Family.of(each) in self._families)

    def _require_name_server(self) -> None:
        if not self._resolvers:
            what = f"the lab has no name server: there is no {KUBE_DNS} with an address"
            raise refused(what, key="to.via", allowed="set dns: true, or add that Service")


def _answering(kube_dns: Service, slices: Sequence[EndpointSlice], servers: Sequence[Sentinel]) -> tuple[str, ...]:
    """The name servers that may answer for the Service: its reachable endpoints, and caches that are no endpoints."""
    own = of_service(kube_dns, slices)
    ends = [each for port in kube_dns.ports for each in endpoints_of_port(kube_dns, port, own)]
    closed = {each.address for each in ends} - {each.address for each in ends if each.is_reachable}
    return tuple(dict.fromkeys(each.name for each in servers if each.address not in closed))


def candidates(name: str, pod_namespace: str | None) -> tuple[str, ...]:
    """The names that a resolver tries for a name, in order, with a pod's resolv.conf (resolv.conf(5), ``ndots``)."""
    whole = name.rstrip(".").lower()
    if pod_namespace is None or name.endswith("."):
        return (whole,)
    below = tuple(f"{whole}.{domain}" for domain in search_domains(pod_namespace))
    return (*below, whole) if whole.count(".") < NDOTS else (whole, *below)


def _names(service: Service, pod_namespace: str | None) -> tuple[str, ...]:
    """From a pod, the Service's shortest name below each search domain; from elsewhere, its whole name."""
    if pod_namespace is None:
        return (f"{service.name}.{service.namespace}.svc.{DOMAIN}",)
    short = service.name if pod_namespace == service.namespace else f"{service.name}.{service.namespace}"
    return tuple(f"{short}.{domain}" for domain in search_domains(pod_namespace))


def _declared_port(service: Service, target: ServiceTarget, probe_protocol: Transport | None) -> tuple[int, Transport]:
    """The port that a client of a name dials: the declared one, or for an ExternalName without ports the probe's."""
    if probe_protocol is Transport.ICMP:
        return 0, probe_protocol
    if not service.ports and isinstance(target.port, int):
        return target.port, probe_protocol or Transport.TCP
    port = service_port(service, target.port, probe_protocol)
    return port.port, probe_protocol or Transport(port.protocol)
