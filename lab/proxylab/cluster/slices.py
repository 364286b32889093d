"""``derive_slices``: EndpointSlices as kube-controller-manager's endpoint slice controller makes them.

The controller's rules (k8s.io/endpointslice, ``reconciler.go`` and ``utils.go``):

* a Service without selector, or of type ExternalName, gets no slices;
* an endpoint is *serving* while its pod is ready, *ready* while it is also not terminating, and a Service with
  ``publishNotReadyAddresses`` declares every endpoint ready;
* an endpoint has a DNS name if its pod has a hostname and names the Service as its subdomain;
* each pod resolves a named target port for itself; pods with different port numbers go to different slices, and a slice
  omits a port that its pods lack;
* a Service that selects nothing still has one empty slice per family;
* hints follow from ``trafficDistribution``, for ready endpoints only (KEP-4444, KEP-3015).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    SERVICE_NAME_LABEL,
    ZONE_LABEL,
    Endpoint,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    KubeObject,
    Node,
    ObjectKey,
    Pod,
    Service,
    ServicePort,
    ServiceType,
)

MAX_ENDPOINTS_PER_SLICE = 100
"""The default of kube-controller-manager's ``--max-endpoints-per-slice``."""

MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"

NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""For generated names: no vowels, so that they form no words (apimachinery's util/rand)."""

SAME_ZONE = frozenset({"PreferClose", "PreferSameZone", "PreferSameNode"})
SAME_NODE = "PreferSameNode"

PortSet = tuple[EndpointPort, ...]


class NamespacedLabel(NamedTuple):
    """A label of pods in one namespace."""

    namespace: str
    key: str
    value: str


def derive_slices(services: Sequence[Service], pods: Sequence[Pod], nodes: Sequence[Node]) -> tuple[EndpointSlice, ...]:
    """The slices of all Services that have a selector.

    The Services have their IP families allocated. The result does not depend on the order of the pods.

    Returns:
        Slices in the order of the Services, then family, ports and number. A slice's name depends only on these, so it
        keeps its name when its endpoints change.
    """
    zones = {node.name: node.labels.get(ZONE_LABEL, "") for node in nodes}
    labelled: dict[NamespacedLabel, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.key):
        for key, value in pod.labels.items():
            labelled.setdefault(NamespacedLabel(pod.namespace, key, value), []).append(pod)
    slices: list[EndpointSlice] = []
    for service in services:
        if not service.selector or service.type is ServiceType.EXTERNAL_NAME:
            continue
        with_each = [labelled.get(NamespacedLabel(service.namespace, *label), []) for label in service.selector.items()]
        selected = [pod for pod in min(with_each, key=len) if service.selector.items() <= pod.labels.items()]
        for family in service.ip_families:
            slices.extend(_slices_of(service, family, selected, zones))
    return tuple(slices)


def slices_of(service: Service, objects: Iterable[KubeObject]) -> tuple[EndpointSlice, ...]:
    """The slices of one Service among the objects of a cluster."""
    own = (service.namespace, service.name)
    return tuple(each for each in objects if isinstance(each, EndpointSlice) and (each.namespace, each.service) == own)


def _slices_of(
    service: Service, family: Family, pods: Iterable[Pod], zones: Mapping[str, str]
) -> Iterator[EndpointSlice]:
    by_ports: dict[PortSet, list[Endpoint]] = {}
    for pod in pods:
        address = next((address for address in pod.addresses if Family.of(address) is family), None)
        if address is None:
            continue
        endpoint = _endpoint(service, pod, address, zones.get(pod.node_name, ""))
        by_ports.setdefault(_ports_of(service, pod), []).append(endpoint)
    for ports, endpoints in sorted(by_ports.items(), key=lambda entry: _spelled(entry[0])) or [((), [])]:
        for number, first in enumerate(range(0, max(1, len(endpoints)), MAX_ENDPOINTS_PER_SLICE)):
            suffix = generated_suffix(service.namespace, service.name, family, _spelled(ports), number)
            yield EndpointSlice(
                namespace=service.namespace,
                name=f"{service.name}-{suffix}",
                service=service.name,
                labels={
                    **service.labels,
                    SERVICE_NAME_LABEL: service.name,
                    MANAGED_BY_LABEL: CONTROLLER,
                    **({HEADLESS_LABEL: ""} if service.headless else {}),
                },
                address_type=family,
                ports=ports,
                endpoints=tuple(endpoints[first : first + MAX_ENDPOINTS_PER_SLICE]),
            )


def _endpoint(service: Service, pod: Pod, address: IPAddress, zone: str) -> Endpoint:
    # Kubernetes has one readiness condition. It stays valid while a pod terminates, as "serving".
    serving = pod.serving if pod.terminating else pod.ready
    ready = service.publish_not_ready_addresses or (serving and not pod.terminating)
    return Endpoint(
        addresses=(address,),
        ready=ready,
        serving=serving,
        terminating=pod.terminating,
        node_name=pod.node_name,
        zone=zone,
        hostname=pod.hostname if pod.subdomain == service.name else "",
        for_zones=(zone,) if ready and zone and service.traffic_distribution in SAME_ZONE else (),
        for_nodes=(pod.node_name,) if ready and service.traffic_distribution == SAME_NODE else (),
        target=pod.name,
    )


def _ports_of(service: Service, pod: Pod) -> PortSet:
    numbered = ((port, _target_number(port, pod)) for port in service.ports)
    return tuple(
        EndpointPort(name=port.name, protocol=port.protocol, port=number) for port, number in numbered if number
    )


def _target_number(port: ServicePort, pod: Pod) -> int | None:
    """The number of ``targetPort`` in this pod; ``None`` if the pod declares no port of that name and protocol."""
    if isinstance(port.target_port, int):
        return port.target_port
    named = (own.port for own in pod.ports if (own.name, own.protocol) == (port.target_port, port.protocol))
    return next(named, None)


def _spelled(ports: PortSet) -> str:
    return ",".join(f"{port.name}/{port.protocol}/{port.port}" for port in ports)


def generated_suffix(*identity: object) -> str:
    """Five letters, as the API server's ``generateName`` adds, but derived from the object's identity."""
    digest = hashlib.sha256("\0".join(map(str, identity)).encode()).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:5])


def endpoints_of(slices: Iterable[EndpointSlice], family: Family) -> Iterator[Endpoints]:
    """The Endpoints that Kubernetes' controller would write for these slices: one for each Service, of one family.

    It writes each address once for a port, in whatever number of slices that stands, and together the ports that the
    same addresses have (RepackSubsets in pkg/api/v1/endpoints/util.go).
    """
    offered: dict[tuple[str, str], dict[EndpointPort | None, set[IPAddress]]] = {}
    for each in slices:
        if each.address_type is family:
            ready = {endpoint.addresses[0] for endpoint in each.endpoints if endpoint.ready}
            of_service = offered.setdefault((each.namespace, each.service), {})
            for port in each.ports or (None,) if ready else ():
                of_service.setdefault(port, set()).update(ready)
    for (namespace, name), of_service in offered.items():
        subsets: dict[tuple[IPAddress, ...], list[EndpointPort]] = {}
        for port, addresses in of_service.items():
            subsets.setdefault(tuple(sorted(addresses, key=int)), []).extend(() if port is None else (port,))
        yield Endpoints(namespace=namespace, name=name, subsets=tuple((to, (*ports,)) for to, ports in subsets.items()))


def endpoints_of_slices(slices: Iterable[EndpointSlice]) -> Iterator[Endpoints]:
    """The Endpoints of each Service in the first of its families: Endpoints have one."""
    found = [*slices]
    known: set[ObjectKey] = set()
    for family in Family:
        for each in endpoints_of(found, family):
            if each.key not in known:
                known.add(each.key)
                yield each
