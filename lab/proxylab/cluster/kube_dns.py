"""The cluster's name server as the API shows it: the Service kube-dns, its pod, and the pods' resolv.conf.

As in clusters of kubeadm and kind, CoreDNS runs in kube-system behind a Service that has its predecessor's name, at the
tenth address of each service network. The kubelet writes that address into every pod.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.allocate import DNS_OFFSET
from proxylab.cluster.objects import Key, Pod, PodPort, Service, ServicePort

__all__ = ["COREDNS", "DNS_PORT", "DOMAIN", "KUBE_DNS", "NDOTS", "coredns", "kube_dns", "resolv_conf", "search_domains"]

KUBE_DNS: Final = Key("Service", "kube-system", "kube-dns")
COREDNS: Final = "coredns"
DOMAIN: Final = "cluster.local"
DNS_PORT: Final = 53
NDOTS: Final = 5
"""The kubelet's value: a resolver tries names with fewer dots below the search domains first (resolv.conf(5))."""

_LABELS: Final = {"k8s-app": "kube-dns"}
_PORTS: Final = ((Protocol.UDP, "dns"), (Protocol.TCP, "dns-tcp"))


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
