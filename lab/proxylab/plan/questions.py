"""``Questions``: the DNS question of a probe that dials a name, its name servers, and the answer that it needs."""

from collections.abc import Mapping, Sequence

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.cluster.kube_dns import DOMAIN, KUBE_DNS, NDOTS, search_domains
from proxylab.cluster.objects import Service
from proxylab.plan.lookup import UnresolvableError, service_port
from proxylab.plan.model import Plan
from proxylab.plan.name_servers import name_servers
from proxylab.plan.resolved import Question
from proxylab.scenario.probes import ServiceTarget

__all__ = ["Questions", "candidates"]


class Questions:
    """Makes the questions of one lab, from its name servers and its families."""

    def __init__(self, plan: Plan, services: Sequence[Service], families: tuple[Family, ...]) -> None:
        self._servers = name_servers(plan)
        self._resolvers = next((service.cluster_ips for service in services if service.key == KUBE_DNS), ())
        self._families = families

    def about(
        self,
        service: Service,
        target: ServiceTarget,
        probe_protocol: Transport | None,
        pod_namespace: str | None,
        addresses_by_name: Mapping[str, tuple[IPAddress, ...]],
    ) -> Question:
        """The question for a Service's name.

        Args:
            service: with everything allocated.
            target: the probe's target.
            probe_protocol: the protocol that the probe names.
            pod_namespace: the Kubernetes namespace of the pod that sends it; ``None`` for other senders.
            addresses_by_name: the addresses of every node, pod and host.

        Raises:
            UnresolvableError: the lab has no name server, or the Service has no such port.
        """
        self._require_name_server()
        port, protocol = _declared_port(service, target, probe_protocol)
        wanted = target.address
        families = [family for family in service.ip_families or self._families if family in self._families]
        if target.family is not None:
            families = [target.family]
        return Question(
            names=_names(service, pod_namespace),
            families=tuple(families) if wanted is None else (Family.of(wanted),),
            resolvers=self._resolvers,
            servers=self._servers,
            service=f"{service.namespace}/{service.name}",
            port=port,
            protocol=protocol,
            due=tuple(each for each in service.cluster_ips if Family.of(each) in self._families),
            headless=service.headless,
            pods=addresses_by_name if service.headless else {},
            wanted=wanted,
        )

    def about_name(self, name: str, pod_namespace: str | None) -> Question:
        """The question of a program for any name, for addresses of all families.

        Args:
            name: absolute if it ends in a dot.
            pod_namespace: the Kubernetes namespace of the pod that sends it; ``None`` for other senders.

        Raises:
            UnresolvableError: the lab has no name server.
        """
        self._require_name_server()
        return Question(
            names=candidates(name, pod_namespace),
            families=self._families,
            resolvers=self._resolvers,
            servers=self._servers,
            service="",
            port=0,
            protocol=Transport.TCP,
        )

    def _require_name_server(self) -> None:
        if not self._resolvers:
            raise UnresolvableError(f"to.via: the lab has no name server: there is no {KUBE_DNS} with an address")


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
