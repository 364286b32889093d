"""What the name of a Service resolves to, by the DNS specification of Kubernetes (schema 1.1.0)."""

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Service, ServiceType
from proxylab.encoding import Record
from proxylab.oracle.moment import Moment


class NameAnswer(Record, frozen=True, kw_only=True):
    """The addresses that a name gives in one family, or the name of which it is an alias, and the rows that say so."""

    addresses: frozenset[IPAddress] = frozenset()
    alias: str = ""
    rows: tuple[str, ...] = ()


def resolve_name(moment: Moment, service: Service, family: Family) -> NameAnswer:
    """What ``NAME.NAMESPACE.svc`` of a Service gives for addresses of a family."""
    if service.type is ServiceType.EXTERNAL_NAME:
        return NameAnswer(alias=service.external_name, rows=("name-of-external-name",))
    if not service.headless:
        own = frozenset(each for each in service.cluster_ips if Family.of(each) is family)
        return NameAnswer(addresses=own, rows=("name-of-cluster-ip",))
    endpoints = (each for own in moment.slices_of(service) if own.address_type is family for each in own.endpoints)
    ready = frozenset(address for each in endpoints if each.ready for address in each.addresses)
    return NameAnswer(addresses=ready, rows=("name-of-headless",))
