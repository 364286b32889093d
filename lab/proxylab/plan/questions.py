"""A probe that dials a name asks for it first: what, whom, and what the answer must be.

Owns: ``Questions``, and which names a resolver tries.
Must not: look at an answer (``verdict.naming`` does).
"""

from collections.abc import Mapping, Sequence

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.cluster.kube_dns import DOMAIN, KUBE_DNS, NDOTS, search_domains
from proxylab.cluster.objects import Service
from proxylab.plan.dialled import UnresolvableError, service_port
from proxylab.plan.model import Plan
from proxylab.plan.naming import name_servers
from proxylab.plan.resolved import Question
from proxylab.scenario.model import ServiceTarget

__all__ = ["Questions", "candidates"]


class Questions:
    """What all questions of one lab have in common: the name server, and the families."""

    def __init__(self, plan: Plan, services: Sequence[Service], families: tuple[Family, ...]) -> None:
        self._servers = name_servers(plan)
        self._resolvers = next((service.cluster_ips for service in services if service.key == KUBE_DNS), ())
        self._families = families

    def about(
        self,
        service: Service,
        target: ServiceTarget,
        asked: Transport | None,
        home: str | None,
        everybody: Mapping[str, tuple[IPAddress, ...]],
    ) -> Question:
        """The question that leads to a Service by its name.

        Args:
            service: with everything allocated.
            target: what the probe dials.
            asked: the protocol that the probe names.
            home: the Kubernetes namespace of the pod that asks; ``None`` for who is no pod.
            everybody: the addresses of every node, pod and host.

        Raises:
            UnresolvableError: there is nobody to ask, or the Service has no such port.
        """
        self._refuse_silence()
        port, protocol = _declared_port(service, target, asked)
        wanted = target.address
        families = [family for family in service.ip_families or self._families if family in self._families]
        if target.family is not None:
            families = [target.family]
        return Question(
            names=_names(service, home),
            families=tuple(families) if wanted is None else (Family.of(wanted),),
            resolvers=self._resolvers,
            servers=self._servers,
            service=f"{service.namespace}/{service.name}",
            port=port,
            protocol=protocol,
            due=tuple(each for each in service.cluster_ips if Family.of(each) in self._families),
            headless=service.headless,
            pods=everybody if service.headless else {},
            wanted=wanted,
        )

    def about_name(self, name: str, home: str | None) -> Question:
        """The question that a program asks for any name, for addresses of all families.

        Args:
            name: absolute where a dot ends it.
            home: the Kubernetes namespace of the pod that asks; ``None`` for who is no pod.

        Raises:
            UnresolvableError: there is nobody to ask.
        """
        self._refuse_silence()
        return Question(
            names=candidates(name, home),
            families=self._families,
            resolvers=self._resolvers,
            servers=self._servers,
            service="",
            port=0,
            protocol=Transport.TCP,
        )

    def _refuse_silence(self) -> None:
        if not self._resolvers:
            raise UnresolvableError(f"to.via: there is no {KUBE_DNS} with an address, so nobody can be asked")


def candidates(name: str, home: str | None) -> tuple[str, ...]:
    """What a resolver tries for a name, in this order, by the resolv.conf of a pod (resolv.conf(5), ``ndots``)."""
    whole = name.rstrip(".").lower()
    if home is None or name.endswith("."):
        return (whole,)
    below = tuple(f"{whole}.{domain}" for domain in search_domains(home))
    return (*below, whole) if whole.count(".") < NDOTS else (whole, *below)


def _names(service: Service, home: str | None) -> tuple[str, ...]:
    """The shortest name that leads there from a pod's namespace, below each search domain; elsewhere, the whole one."""
    if home is None:
        return (f"{service.name}.{service.namespace}.svc.{DOMAIN}",)
    short = service.name if home == service.namespace else f"{service.name}.{service.namespace}"
    return tuple(f"{short}.{domain}" for domain in search_domains(home))


def _declared_port(service: Service, target: ServiceTarget, asked: Transport | None) -> tuple[int, Transport]:
    """What a client of a name dials: an address tells it no target port. An ExternalName need not declare any."""
    if asked is Transport.ICMP:
        return 0, asked
    if not service.ports and isinstance(target.port, int):
        return target.port, asked or Transport.TCP
    port = service_port(service, target.port, asked)
    return port.port, asked or Transport(port.protocol)
