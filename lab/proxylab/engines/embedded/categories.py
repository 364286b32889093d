"""Which endpoints of a service port may receive traffic on this node, and how traffic without one is refused.

All modes share this. It follows pkg/proxy/topology.go, with KEP-1669 (terminating endpoints are the last resort),
KEP-2433 and KEP-3015 (hints by zone and by node), KEP-2086 (internalTrafficPolicy).
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo


class TrafficRefusal(StrEnum):
    """How a node refuses traffic that has no endpoint.

    A Service without any endpoint rejects at once. A Service whose endpoints are all on other nodes drops, so that a
    client behind a balancer tries again and reaches another node.
    """

    REJECT = "REJECT"
    DROP = "DROP"


class EndpointCategories(NamedTuple):
    """The endpoints of one service port by their use; each in rule order.

    Attributes:
        cluster: for traffic under policy Cluster.
        local: for traffic under policy Local.
        reachable: either of the two.
        has_endpoints: whether the service port has a usable endpoint anywhere.
        internal: the refusal of traffic to the cluster IP, ``None`` where it has endpoints.
        external: the same for node ports, external and load-balancer IPs.
    """

    cluster: tuple[EndpointInfo, ...]
    local: tuple[EndpointInfo, ...]
    reachable: tuple[EndpointInfo, ...]
    has_endpoints: bool
    internal: TrafficRefusal | None
    external: TrafficRefusal | None


def categorize_endpoints(port: ServicePortInfo, node: NodeFacts) -> EndpointCategories:
    """Sort the endpoints of ``port`` as the proxy on ``node`` uses them."""
    cluster = _cluster_endpoints(port.endpoints, node) if port.uses_cluster_endpoints else ()
    # Hints apply to cluster-wide traffic only: no endpoint is nearer than one on this node.
    local = _usable([e for e in port.endpoints if e.is_local]) if port.uses_local_endpoints else ()
    has_endpoints = bool(cluster) or (port.uses_local_endpoints and bool(_usable(port.endpoints)))
    return EndpointCategories(
        cluster=cluster,
        local=local,
        reachable=_either(port.endpoints, cluster, local),
        has_endpoints=has_endpoints,
        internal=_refusal(has_endpoints, none_here=port.internal_policy_local and not local),
        external=_refusal(has_endpoints, none_here=port.external_policy_local and not local),
    )


def ports_without_local(ports: Iterable[ServicePortInfo], node: NodeFacts) -> tuple[int, int]:
    """How many service ports drop packets to the cluster IP, and how many packets to other frontends."""
    found = [categorize_endpoints(port, node) for port in ports if port.uses_local_endpoints]
    internal, external = ([each.internal for each in found], [each.external for each in found])
    return internal.count(TrafficRefusal.DROP), external.count(TrafficRefusal.DROP)


def _either(
    endpoints: Sequence[EndpointInfo], cluster: tuple[EndpointInfo, ...], local: tuple[EndpointInfo, ...]
) -> tuple[EndpointInfo, ...]:
    if not local or not cluster:
        return cluster or local
    used = {endpoint.name for endpoint in (*cluster, *local)}
    return tuple([endpoint for endpoint in endpoints if endpoint.name in used])


def _refusal(has_endpoints: bool, *, none_here: bool) -> TrafficRefusal | None:
    if not has_endpoints:
        return TrafficRefusal.REJECT
    return TrafficRefusal.DROP if none_here else None


def _usable(endpoints: Sequence[EndpointInfo]) -> tuple[EndpointInfo, ...]:
    """The ready endpoints or, if there are none, those that terminate and still serve."""
    ready = tuple([endpoint for endpoint in endpoints if endpoint.ready])
    return ready or tuple([endpoint for endpoint in endpoints if endpoint.serving and endpoint.terminating])


def _cluster_endpoints(endpoints: Sequence[EndpointInfo], node: NodeFacts) -> tuple[EndpointInfo, ...]:
    ready = [endpoint for endpoint in endpoints if endpoint.ready]
    return _hinted(ready, node) if ready else _usable(endpoints)


def _hinted(ready: Sequence[EndpointInfo], node: NodeFacts) -> tuple[EndpointInfo, ...]:
    """The ready endpoints that hints assign to this node.

    Hints of a kind count only if every ready endpoint has some and one of them names this node or its zone. Incomplete
    hints would overload the few endpoints that have them.
    """
    for_node = tuple([endpoint for endpoint in ready if node.name in endpoint.for_nodes])
    if for_node and all(endpoint.for_nodes for endpoint in ready):
        return for_node
    for_zone = tuple([endpoint for endpoint in ready if node.zone and node.zone in endpoint.for_zones])
    if for_zone and all(endpoint.for_zones for endpoint in ready):
        return for_zone
    return tuple(ready)
