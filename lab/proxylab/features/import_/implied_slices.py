"""EndpointSlices that kubectl's output lacks, and that the control plane has: from Endpoints, or by selectors.

An export without EndpointSlices may have the older Endpoints, which say the same. Without both, the pods that a Service
selects are its endpoints, as the lab derives them, too. Both are made as kubectl would print them.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from proxylab.addresses import Family, without_leading_zeros
from proxylab.cluster.objects import SERVICE_NAME_LABEL
from proxylab.features.import_.live_objects import LivePod, PodsByLabel
from proxylab.features.import_.reading import Raw, at, namespaced

ServiceId = tuple[str, str]


def sliced_services(slices: Iterable[Raw]) -> set[ServiceId]:
    """The Services that have a slice."""
    return {(namespaced(each)[0], str(at(each, "metadata", "labels", SERVICE_NAME_LABEL))) for each in slices}


def mirrored_slices(endpoints: Raw) -> Iterator[Raw]:
    """The slices with the contents of an Endpoints object: one for each subset and family; an empty one without any."""
    namespace, name = namespaced(endpoints)
    subsets = at(endpoints, "subsets") or []
    for number, subset in enumerate(subsets):
        ports = [
            {"name": each.get("name") or "", "port": each["port"], "protocol": each.get("protocol") or "TCP"}
            for each in at(subset, "ports") or []
        ]
        found = [
            (each, ready)
            for key, ready in (("addresses", True), ("notReadyAddresses", False))
            for each in at(subset, key) or []
        ]
        for family in Family:
            own = [
                {
                    "addresses": [each["ip"]],
                    "conditions": {"ready": ready},
                    **{key: each[key] for key in ("nodeName", "targetRef") if each.get(key)},
                }
                for each, ready in found
                if Family.of(ip_address(without_leading_zeros(str(each["ip"])))) is family
            ]
            if own:
                yield _slice(namespace, name, f"{family.lower()}-{number}", family, ports, own)
    if not subsets:
        yield _slice(namespace, name, "none", Family.IPV4, [], [])


def derived_slices(service: Raw, pods: PodsByLabel, families: Iterable[Family]) -> Iterator[Raw]:
    """The slices of a Service with a selector, one for each family and for each choice of ports that pods declare."""
    namespace, name = namespaced(service)
    chosen = pods.selected(namespace, at(service, "spec", "selector") or {})
    publish = bool(at(service, "spec", "publishNotReadyAddresses"))
    for family in families:
        by_ports: dict[tuple[_PortOfPod, ...], list[Raw]] = {}
        for pod in chosen:
            for address in (each for each in pod.addresses if Family.of(each) is family):
                conditions = {
                    "ready": publish or (pod.ready and not pod.leaving),
                    "serving": pod.ready,
                    "terminating": pod.leaving,
                }
                endpoint = {
                    "addresses": [str(address)],
                    "conditions": conditions,
                    "nodeName": pod.node,
                    "targetRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name},
                }
                by_ports.setdefault(tuple(_ports(service, pod)), []).append(endpoint)
        for number, (ports, endpoints) in enumerate(by_ports.items()):
            written = [each._asdict() for each in ports]
            yield _slice(namespace, name, f"{family.lower()}-{number}", family, written, endpoints)


class _PortOfPod(NamedTuple):
    """A Service's port with its number at a pod, in the keys of an EndpointSlice."""

    name: str
    port: int
    protocol: str


def _ports(service: Raw, pod: LivePod) -> Iterator[_PortOfPod]:
    """The Service's ports with their numbers at a pod; a named one only where a container declares it."""
    for port in at(service, "spec", "ports") or []:
        protocol, target = str(port.get("protocol") or "TCP"), port.get("targetPort") or port["port"]
        if isinstance(target, str) and not target.isdigit():
            named = (number for (own, number), name in pod.ports.items() if (own, name) == (protocol, target))
            target = next(named, None)
        if target is not None:
            yield _PortOfPod(str(port.get("name") or ""), int(target), protocol)


def _slice(
    namespace: str, service: str, suffix: str, family: Family, ports: Sequence[Raw], endpoints: Sequence[Raw]
) -> Raw:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{service}-{suffix}",
            "labels": {SERVICE_NAME_LABEL: service},
        },
        "addressType": str(family),
        "ports": ports,
        "endpoints": endpoints,
    }
