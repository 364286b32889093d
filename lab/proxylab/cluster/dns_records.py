"""``Names``: the cluster's DNS names and their records, as in Kubernetes DNS-Based Service Discovery, schema 1.1.0.

The source is https://github.com/kubernetes/dns/blob/master/docs/specification.md. Where it leaves a choice, the module
does as CoreDNS' kubernetes plugin: an endpoint without a hostname has its address with dashes as its name, and records
live for 5 seconds.

=====================  ========  ==================================================================================
name                   type      points to
=====================  ========  ==================================================================================
dns-version            TXT       the version of the schema
SVC.NS.svc             A, AAAA   the cluster IPs; of a headless Service, every ready endpoint
_PORT._PROTO.SVC…      SRV       for each named port the Service, or every ready endpoint of a headless one
HOST.SVC.NS.svc        A, AAAA   one ready endpoint of a headless Service
SVC.NS.svc             CNAME     the external name of a Service of type ExternalName
reverse names          PTR       the Service of a cluster IP; an endpoint with a hostname of a headless Service
=====================  ========  ==================================================================================
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import EndpointSlice, Service, ServiceType

__all__ = ["SCHEMA_VERSION", "TTL_SECONDS", "Kind", "Names", "Record", "Srv"]

SCHEMA_VERSION: Final = "1.1.0"
TTL_SECONDS: Final = 5
_REVERSE: Final = ("in-addr.arpa", "ip6.arpa")
_WEIGHT: Final = 100


class Kind(StrEnum):
    """The types of record that the schema has."""

    A = "A"
    AAAA = "AAAA"
    CNAME = "CNAME"
    PTR = "PTR"
    SRV = "SRV"
    TXT = "TXT"


class Srv(Struct, frozen=True):
    """The location of a port (RFC 2782): ``target`` is a name with an address record."""

    target: str
    port: int
    priority: int = 0
    weight: int = _WEIGHT


class Record(Struct, frozen=True):
    """One record of a name. Names in ``value`` are absolute, without the dot at the end."""

    kind: Kind
    value: IPAddress | Srv | str


class Names:
    """The names of a cluster at one moment.

    Args:
        services: with their cluster IPs allocated.
        slices: for the endpoints of headless Services.
        domain: the cluster's, without the dot at the end.
    """

    def __init__(
        self, services: Iterable[Service], slices: Sequence[EndpointSlice], domain: str = "cluster.local"
    ) -> None:
        self.domain: Final = domain.lower()
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for name, record in _records(services, slices, self.domain):
            if record not in found[name]:
                found[name].append(record)
        self._records: Final[Mapping[str, tuple[Record, ...]]] = {name: tuple(each) for name, each in found.items()}
        self._existing: Final = frozenset(_with_ancestors(self._records, self.domain))

    def covers(self, name: str) -> bool:
        """Whether the cluster is authoritative for ``name``: it is in the cluster's domain, or a reverse name."""
        return any(name == zone or name.endswith(f".{zone}") for zone in (self.domain, *_REVERSE))

    def at(self, name: str) -> tuple[Record, ...] | None:
        """The records of a name: empty if only names below it have records, ``None`` if it does not exist.

        RFC 8020 and RFC 4592 section 2.2.2 explain the difference. ``name`` is in lower case, without the last dot.
        """
        if name not in self._existing:
            return None
        return self._records.get(name, ())


def _with_ancestors(names: Iterable[str], domain: str) -> Iterator[str]:
    """Every name with its ancestors. The namespaces that every cluster has exist even without a Service."""
    for name in (*names, f"default.svc.{domain}", f"kube-system.svc.{domain}", *_REVERSE):
        labels = name.split(".")
        yield from (".".join(labels[start:]) for start in range(len(labels)))


def _records(services: Iterable[Service], slices: Sequence[EndpointSlice], domain: str) -> Iterator[tuple[str, Record]]:
    yield f"dns-version.{domain}", Record(Kind.TXT, SCHEMA_VERSION)
    by_service: defaultdict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for each in slices:
        by_service[each.namespace, each.service].append(each)
    for service in services:
        name = f"{service.name}.{service.namespace}.svc.{domain}".lower()
        if service.type is ServiceType.EXTERNAL_NAME:
            yield name, Record(Kind.CNAME, service.external_name.rstrip(".").lower())
        elif service.headless:
            yield from _headless(name, by_service[service.namespace, service.name])
        else:
            yield from _with_cluster_ips(name, service)


def _with_cluster_ips(name: str, service: Service) -> Iterator[tuple[str, Record]]:
    for address in service.cluster_ips:
        yield name, _address(address)
        yield address.reverse_pointer, Record(Kind.PTR, name)
    for port in service.ports:
        if port.name:
            yield f"_{port.name}._{port.protocol.lower()}.{name}", Record(Kind.SRV, Srv(name, port.port))


def _headless(name: str, slices: Iterable[EndpointSlice]) -> Iterator[tuple[str, Record]]:
    """The records of a headless Service. ``ready`` in its slices includes ``publishNotReadyAddresses``."""
    for each in slices:
        for endpoint in each.endpoints:
            if not endpoint.ready:
                continue
            for address in endpoint.addresses:
                host = f"{endpoint.hostname or _dashed(address)}.{name}".lower()
                yield name, _address(address)
                yield host, _address(address)
                if endpoint.hostname:
                    yield address.reverse_pointer, Record(Kind.PTR, host)
                for port in each.ports:
                    if port.name:
                        record = Record(Kind.SRV, Srv(host, port.port))
                        yield f"_{port.name}._{port.protocol.lower()}.{name}", record


def _address(address: IPAddress) -> Record:
    return Record(Kind.A if Family.of(address) is Family.IPV4 else Kind.AAAA, address)


def _dashed(address: IPAddress) -> str:
    return str(address).replace(".", "-").replace(":", "-")
