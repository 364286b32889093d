"""Services and EndpointSlices, normalised to the service ports of one family.

Owns ``ServicePortInfo`` and ``EndpointInfo`` (kube-proxy's own names), for all modes; ``categories`` chooses among the
endpoints. A service port is one port of one Service in one family, with the endpoints of all slices that carry a port
of the same name and protocol. The endpoint's port number comes from the slice, never from the Service (upstream:
serviceport.go and endpointslicecache.go in pkg/proxy).

``PortTracker`` remembers one family's service ports, and makes anew only those whose objects changed. It follows no
events: it compares the frozen objects with those of the last sync, so a lost event loses no change, and an unchanged
object costs one comparison of identities.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.allocate import needs_health_check
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    Endpoint,
    EndpointSlice,
    ObjectKey,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.cluster.store import Store


class ClusterView(Struct, frozen=True):
    """The objects that determine the rules, in any order.

    ``allows_external_ips`` is the feature gate ``AllowServiceExternalIPs`` (KEP-5707).
    """

    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    service_cidrs: tuple[IPNetwork, ...] = ()
    allows_external_ips: bool = True

    @classmethod
    def of(cls, store: Store, *, allows_external_ips: bool = True) -> "ClusterView":
        """The objects as the store has them now."""
        cidrs = tuple([cidr for each in store.list(ServiceCIDR) for cidr in each.cidrs])
        return cls(store.list(Service), store.list(EndpointSlice), cidrs, allows_external_ips)


class EndpointInfo(NamedTuple):
    """One endpoint of one service port.

    ``ip`` is its address as text; ``name`` is ``ip:port``, with brackets around an IPv6 address.
    """

    address: IPAddress
    ip: str
    port: int
    name: str
    is_local: bool
    ready: bool
    serving: bool
    terminating: bool
    for_zones: tuple[str, ...] = ()
    for_nodes: tuple[str, ...] = ()


class ServicePortInfo(NamedTuple):
    """One service port in one family.

    Attributes:
        name: ``namespace/name``, with ``:port`` if the port has a name. Not unique: two protocols may share it.
        ignores_external_ips: whether the Service has external IPs of which the proxy serves none. It still writes the
            chain of traffic from outside.
        load_balancer_vips: ingress addresses whose packets reach the node unchanged (``ipMode: VIP``); of a proxy
            before 1.29, which knows no ipMode, all.
        source_ranges: empty when every source may use the load-balancer IPs.
        health_check_node_port: 0 where the Service has none.
        affinity_timeout: seconds, ``None`` without session affinity.
        endpoints: all endpoints, usable or not, in the order of the rules: sorted by ``name`` as strings.
    """

    service: ObjectKey
    name: str
    protocol: Protocol
    cluster_ip: IPAddress
    port: int
    node_port: int = 0
    external_ips: tuple[IPAddress, ...] = ()
    load_balancer_vips: tuple[IPAddress, ...] = ()
    source_ranges: tuple[IPNetwork, ...] = ()
    health_check_node_port: int = 0
    internal_policy_local: bool = False
    external_policy_local: bool = False
    affinity_timeout: int | None = None
    endpoints: tuple[EndpointInfo, ...] = ()
    ignores_external_ips: bool = False

    @property
    def externally_accessible(self) -> bool:
        """Whether it has a frontend besides its cluster IP."""
        return bool(self.node_port or self.load_balancer_vips or self.external_ips or self.ignores_external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Whether traffic may go to endpoints anywhere.

        Also under externalTrafficPolicy Local: pods and the node itself are short-circuited to all endpoints.
        """
        return not self.internal_policy_local or self.externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Whether some traffic may go to this node's endpoints only."""
        return self.internal_policy_local or (self.external_policy_local and self.externally_accessible)


def in_order(services: Iterable[Service]) -> list[Service]:
    """Services in the order of their keys."""
    return sorted(services, key=attrgetter("namespace", "name"))


def slices_by_service(slices: Iterable[EndpointSlice], family: Family) -> dict[tuple[str, str], list[EndpointSlice]]:
    """The family's slices by the namespace and name of their Service, each in order; a proxy ignores headless ones."""
    found: dict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for item in slices:
        if item.address_type is family and HEADLESS_LABEL not in item.labels:
            found[item.namespace, item.service].append(item)
    for several in found.values():
        if len(several) > 1:
            several.sort(key=attrgetter("name"))
    return found


def ports_of(
    service: Service,
    family: Family,
    slices: Iterable[EndpointSlice],
    node_name: str,
    *,
    allows_external_ips: bool = True,
    knows_ip_mode: bool = True,
) -> Iterator[ServicePortInfo]:
    """The service ports of one Service, given its slices."""
    if service.headless or service.type is ServiceType.EXTERNAL_NAME or SERVICE_PROXY_NAME_LABEL in service.labels:
        return
    # Without a cluster IP of the family a Service has no rules, not even for node ports or VIPs of that family.
    cluster_ips = _of_family(service.cluster_ips, family)
    if not cluster_ips:
        return
    external_ips = _of_family(service.external_ips, family)
    for port in service.ports:
        yield ServicePortInfo(
            service=service.key,
            name=f"{service.namespace}/{service.name}" + (f":{port.name}" if port.name else ""),
            protocol=port.protocol,
            cluster_ip=cluster_ips[0],
            port=port.port,
            node_port=port.node_port,
            external_ips=external_ips if allows_external_ips else (),
            ignores_external_ips=bool(external_ips) and not allows_external_ips,
            load_balancer_vips=_vips(service, family, knows_ip_mode=knows_ip_mode),
            source_ranges=_source_ranges(service, family),
            health_check_node_port=_health_check_node_port(service),
            internal_policy_local=service.internal_traffic_policy is TrafficPolicy.LOCAL,
            external_policy_local=_external_policy_local(service),
            affinity_timeout=service.affinity_timeout,
            endpoints=_endpoints(port, slices, node_name),
        )


def _of_family(addresses: Sequence[IPAddress], family: Family) -> tuple[IPAddress, ...]:
    if not addresses:
        return ()
    version = 4 if family is Family.IPV4 else 6
    return tuple([address for address in addresses if address.version == version])


def _vips(service: Service, family: Family, *, knows_ip_mode: bool) -> tuple[IPAddress, ...]:
    # A balancer in mode Proxy (KEP-1860) rewrites the destination: no packet to its address reaches a node.
    if not service.load_balancer_ingress:
        return ()
    entries = [each for each in service.load_balancer_ingress if each.ip_mode == "VIP" or not knows_ip_mode]
    return _of_family([each.ip for each in entries if each.ip], family)


def _source_ranges(service: Service, family: Family) -> tuple[IPNetwork, ...]:
    if not service.source_ranges:
        return ()
    ranges = tuple([network for network in service.source_ranges if Family.of(network) is family])
    return () if any(network.prefixlen == 0 for network in ranges) else ranges


def _external_policy_local(service: Service) -> bool:
    return service.external_traffic_policy is TrafficPolicy.LOCAL and service.externally_accessible


def _health_check_node_port(service: Service) -> int:
    return service.health_check_node_port if needs_health_check(service) else 0


def _endpoints(port: ServicePort, slices: Iterable[EndpointSlice], node_name: str) -> tuple[EndpointInfo, ...]:
    found: dict[str, EndpointInfo] = {}
    for item in slices:
        for own in item.ports:
            if not own.port or own.name != port.name or own.protocol is not port.protocol:
                continue
            for endpoint in item.endpoints:
                if not endpoint.addresses:  # the API refuses it, and a proxy ignores it
                    continue
                info = _endpoint(endpoint, own.port, node_name)
                # A pod that moves between slices is in two of them for a moment; the live entry wins.
                if not endpoint.terminating or info.name not in found:
                    found[info.name] = info
    return tuple([found[name] for name in sorted(found)])


def _endpoint(endpoint: Endpoint, port: int, node_name: str) -> EndpointInfo:
    address = endpoint.addresses[0]
    # Formatted once: every rule about the endpoint names it, and formatting an address takes longer than a rule.
    ip = str(address)
    return EndpointInfo(
        address,
        ip,
        port,
        f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}",
        bool(node_name) and endpoint.node_name == node_name,
        endpoint.ready,
        endpoint.serving,
        endpoint.terminating,
        endpoint.for_zones,
        endpoint.for_nodes,
    )


_Seen = tuple[Service, Sequence[EndpointSlice]]


class PortTracker:
    """The service ports of one family, as the proxy on one node sees them."""

    def __init__(self, family: Family, node_name: str, *, knows_ip_mode: bool = True) -> None:
        self._family = family
        self._node_name = node_name
        self._knows_ip_mode = knows_ip_mode
        self._tracked: dict[tuple[str, str], tuple[_Seen, tuple[ServicePortInfo, ...]]] = {}

    def update(self, cluster: ClusterView) -> tuple[ServicePortInfo, ...]:
        """The service ports in the order of their Services' keys. An unchanged one is the same object as before."""
        slices = slices_by_service(cluster.slices, self._family)
        now: dict[tuple[str, str], tuple[_Seen, tuple[ServicePortInfo, ...]]] = {}
        for service in in_order(cluster.services):
            key = (service.namespace, service.name)
            seen = (service, slices.get(key, ()))
            before = self._tracked.get(key)
            if before is None or before[0] != seen:
                found = ports_of(
                    service,
                    self._family,
                    seen[1],
                    self._node_name,
                    allows_external_ips=cluster.allows_external_ips,
                    knows_ip_mode=self._knows_ip_mode,
                )
                before = seen, tuple(found)
            now[key] = before
        self._tracked = now
        return tuple([port for _, ports in now.values() for port in ports])
