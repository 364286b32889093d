"""The cluster's DNS as the API shows it: the Service kube-dns, its pod, resolv.conf, and every name (``ClusterNames``).

As in clusters of kubeadm and kind, CoreDNS runs in kube-system behind a Service that has its predecessor's name, at the
tenth address of each service network. The kubelet writes that address into every pod.

Names and records are those of Kubernetes DNS-Based Service Discovery, schema 1.1.0
(https://github.com/kubernetes/dns/blob/master/docs/specification.md). Where it leaves a choice, the module does as
CoreDNS' kubernetes plugin: an endpoint without a hostname has its address with dashes as its name, and records live for
5 seconds.

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

Beside these, the lab's name server knows the hostnames of load balancers, as the name servers of their clouds do.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.allocate import DNS_OFFSET
from proxylab.cluster.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    ObjectKey,
    Pod,
    PodPort,
    Service,
    ServicePort,
    ServiceType,
)

_SCHEMA_VERSION: Final = "1.1.0"
TTL_SECONDS: Final = 5
_REVERSE: Final = ("in-addr.arpa", "ip6.arpa")
_WEIGHT: Final = 100
KUBE_DNS: Final = ObjectKey("Service", "kube-system", "kube-dns")
COREDNS: Final = "coredns"
DOMAIN: Final = "cluster.local"
DNS_PORT: Final = 53
NDOTS: Final = 5
"""The kubelet's value: a resolver tries names with fewer dots below the search domains first (resolv.conf(5))."""

_LABELS: Final = {"k8s-app": "kube-dns"}
_PORTS: Final = ((Protocol.UDP, "dns"), (Protocol.TCP, "dns-tcp"))


class RecordKind(StrEnum):
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


class DnsRecord(Struct, frozen=True):
    """One record of a name. Names in ``value`` are absolute, without the dot at the end."""

    kind: RecordKind
    value: IPAddress | Srv | str


class ClusterNames:
    """The names of a cluster at one moment.

    Args:
        slices: for the endpoints of headless Services.
        domain: the cluster's, without the dot at the end.
    """

    def __init__(
        self, services: Iterable[Service], slices: Sequence[EndpointSlice], domain: str = "cluster.local"
    ) -> None:
        services = tuple(services)
        self.domain: Final = domain.lower()
        balancers = [entry for service in services for entry in service.load_balancer_ingress if entry.behind]
        self._zones: Final = (self.domain, *_REVERSE, *(entry.hostname.lower() for entry in balancers))
        found: defaultdict[str, list[DnsRecord]] = defaultdict(list)
        for name, record in chain(_records(services, slices, self.domain), _balanced(balancers)):
            if record not in found[name]:
                found[name].append(record)
        self._records: Final[Mapping[str, tuple[DnsRecord, ...]]] = {name: tuple(each) for name, each in found.items()}
        self._existing: Final = frozenset(_with_ancestors(self._records, self.domain))

    def covers(self, name: str) -> bool:
        """Whether the lab knows all about ``name``: it is in the cluster's domain, a reverse name, or a balancer's."""
        return any(name == zone or name.endswith(f".{zone}") for zone in self._zones)

    def at(self, name: str) -> tuple[DnsRecord, ...] | None:
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


def _balanced(entries: Iterable[LoadBalancerIngress]) -> Iterator[tuple[str, DnsRecord]]:
    """The addresses of load balancers that have a hostname."""
    for entry in entries:
        for address in entry.behind:
            yield entry.hostname.lower(), _address(address)


def _records(
    services: Iterable[Service], slices: Sequence[EndpointSlice], domain: str
) -> Iterator[tuple[str, DnsRecord]]:
    yield f"dns-version.{domain}", DnsRecord(RecordKind.TXT, _SCHEMA_VERSION)
    by_service: defaultdict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for each in slices:
        by_service[each.namespace, each.service].append(each)
    for service in services:
        name = f"{service.name}.{service.namespace}.svc.{domain}".lower()
        if service.type is ServiceType.EXTERNAL_NAME:
            yield name, DnsRecord(RecordKind.CNAME, service.external_name.rstrip(".").lower())
        elif service.headless:
            yield from _headless(name, by_service[service.namespace, service.name])
        else:
            yield from _with_cluster_ips(name, service)


def _with_cluster_ips(name: str, service: Service) -> Iterator[tuple[str, DnsRecord]]:
    for address in service.cluster_ips:
        yield name, _address(address)
        yield address.reverse_pointer, DnsRecord(RecordKind.PTR, name)
    for port in service.ports:
        if port.name:
            yield f"_{port.name}._{port.protocol.lower()}.{name}", DnsRecord(RecordKind.SRV, Srv(name, port.port))


def _headless(name: str, slices: Iterable[EndpointSlice]) -> Iterator[tuple[str, DnsRecord]]:
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
                    yield address.reverse_pointer, DnsRecord(RecordKind.PTR, host)
                for port in each.ports:
                    if port.name:
                        record = DnsRecord(RecordKind.SRV, Srv(host, port.port))
                        yield f"_{port.name}._{port.protocol.lower()}.{name}", record


def _address(address: IPAddress) -> DnsRecord:
    return DnsRecord(RecordKind.A if Family.of(address) is Family.IPV4 else RecordKind.AAAA, address)


def _dashed(address: IPAddress) -> str:
    return str(address).replace(".", "-").replace(":", "-")


def kube_dns(service_cidrs: Iterable[IPNetwork]) -> Service:
    """The Service, which requests the tenth address of each network, primary family first."""
    addresses = tuple(network[DNS_OFFSET] for network in service_cidrs)
    return Service(
        namespace=KUBE_DNS.namespace,
        name=KUBE_DNS.name,
        labels=_LABELS,
        selector=_LABELS,
        cluster_ips=addresses,
        ip_families=tuple(map(Family.of, addresses)),
        ip_family_policy="SingleStack" if len(addresses) == 1 else "RequireDualStack",
        ports=tuple(
            ServicePort(name=name, protocol=protocol, port=DNS_PORT, target_port=DNS_PORT) for protocol, name in _PORTS
        ),
    )


def coredns(node: str, addresses: Sequence[IPAddress]) -> Pod:
    """The Service's pod."""
    return Pod(
        namespace=KUBE_DNS.namespace,
        name=f"{COREDNS}-0",
        labels=_LABELS,
        node_name=node,
        addresses=tuple(addresses),
        ports=tuple(PodPort(name=name, protocol=protocol, port=DNS_PORT) for protocol, name in _PORTS),
    )


def search_domains(namespace: str) -> tuple[str, ...]:
    """The search domains of a pod in ``namespace``, in order."""
    return (f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN)


def resolv_conf(namespace: str, servers: Iterable[IPAddress]) -> str:
    """The /etc/resolv.conf of a pod with dnsPolicy ClusterFirst."""
    return "".join(
        (
            f"search {' '.join(search_domains(namespace))}\n",
            *(f"nameserver {server}\n" for server in servers),
            f"options ndots:{NDOTS}\n",
        )
    )
