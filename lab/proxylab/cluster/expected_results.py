"""What Kubernetes promises a pod, or a machine outside, that dials a Service: the endpoints, and the source they see.

It follows from the objects alone (https://kubernetes.io/docs/reference/networking/virtual-ips/), independent of every
engine, so that a lab can compare engines with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.objects import Endpoint, EndpointSlice, PortKey, Service, ServicePort, TrafficPolicy

PRESERVED: Final = "preserved"
MASQUERADED: Final = "masqueraded"


class Caller(Struct, frozen=True, kw_only=True):
    """A pod that dials: its node, and the node's zone.

    ``local`` says whether the proxy takes it for a pod of the cluster (detectLocalMode), and ``masqueraded`` whether
    the proxy masquerades what it sends to a cluster IP.
    """

    node: str
    zone: str
    local: bool = True
    masqueraded: bool = False


class UsedEndpoint(Struct, frozen=True):
    """An endpoint that may get the packet: its address and port, and its node, if any."""

    address: IPAddress
    port: PortKey
    node: str


class ExpectedResult(Struct, frozen=True, kw_only=True):
    """The outcome of a packet. ``source`` is ``None`` where the backends see different sources."""

    outcome: str
    used: tuple[UsedEndpoint, ...] = ()
    source: object = None


_REJECTED: Final = ExpectedResult(outcome="rejected")
_DROPPED: Final = ExpectedResult(outcome="dropped")


def through_cluster_ip(
    service: Service, port: ServicePort, family: Family, slices: Iterable[EndpointSlice], caller: Caller
) -> ExpectedResult:
    """The promise for the cluster IP. ``internalTrafficPolicy: Local`` drops where only other nodes have endpoints."""
    endpoints = _endpoints(service, port, family, slices)
    everywhere = _chosen(endpoints, caller)
    if service.internal_traffic_policy is TrafficPolicy.LOCAL:
        local = _chosen([each for each in endpoints if each[0].node_name == caller.node], caller, by_hints=False)
        if not local:
            return _DROPPED if everywhere else _REJECTED
        everywhere = local
    source = MASQUERADED if caller.masqueraded else PRESERVED
    return _delivered(everywhere, source) if everywhere else _REJECTED


def from_outside(
    service: Service,
    port: ServicePort,
    family: Family,
    slices: Iterable[EndpointSlice],
    entry: Caller,
    *,
    on_the_node: Collection[tuple[IPAddress, PortKey]],
    allowed: Sequence[IPNetwork] = (),
    address: IPAddress | None = None,
) -> ExpectedResult:
    """The promise for a machine outside, with that address, that dials a node port, or an address by way of the node.

    ``externalTrafficPolicy: Local`` keeps the client's address, and uses the endpoints of the entry node alone.
    Otherwise the node masquerades, except for its own programs. The other parameters are as below.
    """
    endpoints = _endpoints(service, port, family, slices)
    used = _chosen(endpoints, entry)
    if not used:
        return _REJECTED
    if allowed and address is not None and not any(address in each for each in allowed):
        return _DROPPED
    if service.external_traffic_policy is TrafficPolicy.LOCAL:
        local = _chosen([each for each in endpoints if each[0].node_name == entry.node], entry, by_hints=False)
        return _delivered(local, PRESERVED) if local else _DROPPED
    own = {(each.addresses[0], own_port) for each, own_port in used} & set(on_the_node)
    kept = {key for key in own if any(each.addresses[0] == key[0] and each.node_name == entry.node for each, _ in used)}
    return _delivered(used, MASQUERADED if not kept else PRESERVED if len(kept) == len(used) else None)


def through_other_frontend(
    service: Service,
    port: ServicePort,
    family: Family,
    slices: Iterable[EndpointSlice],
    caller: Caller,
    *,
    on_the_node: Collection[tuple[IPAddress, PortKey]],
    allowed: Sequence[IPNetwork] = (),
    own: Sequence[IPNetwork] = (),
) -> ExpectedResult:
    """The promise for a node port of the caller's own node, an external IP, or a load balancer's address.

    The caller's own node translates all three. ``externalTrafficPolicy: Local`` applies to clients from outside: pods
    reach all endpoints with their own address. Otherwise the node masquerades, except for its own programs.
    ``on_the_node`` are the address and port of every listener in the network of the caller's node, ``allowed`` the
    ``loadBalancerSourceRanges``, where they apply, and ``own`` the pod networks.
    """
    everywhere = _endpoints(service, port, family, slices)
    used = _chosen(everywhere, caller)
    if not used:
        return _REJECTED
    if allowed and not any(_within(each, allowed) for each in own if Family.of(each) is family):
        return _DROPPED
    if service.external_traffic_policy is TrafficPolicy.LOCAL and not caller.local:
        local = _chosen([each for each in everywhere if each[0].node_name == caller.node], caller, by_hints=False)
        return _delivered(local, PRESERVED) if local else _DROPPED
    if service.external_traffic_policy is TrafficPolicy.LOCAL:
        return _delivered(used, PRESERVED)
    sources = [_hidden(each, caller, on_the_node) for each in used]
    return _delivered(used, sources[0] if all(each == sources[0] for each in sources) else None)


def _endpoints(
    service: Service, port: ServicePort, family: Family, slices: Iterable[EndpointSlice]
) -> list[tuple[Endpoint, PortKey]]:
    return [
        (endpoint, (each.protocol, each.port))
        for found in slices
        if (found.namespace, found.service, found.address_type) == (service.namespace, service.name, family)
        for each in found.ports
        if (each.name, each.protocol) == (port.name, port.protocol)
        for endpoint in found.endpoints
    ]


def _chosen(
    endpoints: list[tuple[Endpoint, PortKey]], caller: Caller, *, by_hints: bool = True
) -> list[tuple[Endpoint, PortKey]]:
    """The ready endpoints, by hints if all have some; else those that terminate and still serve."""
    ready = [each for each in endpoints if each[0].ready]
    if not ready:
        return [each for each in endpoints if each[0].serving and each[0].terminating]
    if not by_hints:
        return ready
    here = [each for each in ready if caller.node in each[0].for_nodes]
    if here and all(each.for_nodes for each, _ in ready):
        return here
    near = [each for each in ready if caller.zone in each[0].for_zones]
    return near if caller.zone and near and all(each.for_zones for each, _ in ready) else ready


def _delivered(chosen: Iterable[tuple[Endpoint, PortKey]], source: object) -> ExpectedResult:
    used = dict.fromkeys(UsedEndpoint(each.addresses[0], port, each.node_name) for each, port in chosen)
    return ExpectedResult(outcome="delivered", used=tuple(used), source=source)


def _hidden(
    chosen: tuple[Endpoint, PortKey], caller: Caller, on_the_node: Collection[tuple[IPAddress, PortKey]]
) -> str | Mapping[str, str]:
    """The source that a backend sees for a masqueraded pod: the address of the device by which the packet leaves."""
    endpoint, port = chosen
    if endpoint.node_name != caller.node:
        return {"node": caller.node, "device": "uplink"}
    if (endpoint.addresses[0], port) in on_the_node:  # the packet never leaves the node, so nothing masquerades it
        return PRESERVED
    return {"node": caller.node, "device": "pods"}


def _within(network: IPNetwork, allowed: Sequence[IPNetwork]) -> bool:
    return any(
        each.version == network.version and network.subnet_of(each)  # type: ignore[arg-type]  # they are of one family
        for each in allowed
    )
