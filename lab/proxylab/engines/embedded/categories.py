"""Which endpoints of a service port may receive traffic on this node.

Owns: ``categorize_endpoints`` and what follows from it for traffic that finds none. Shared by all modes.
Must not: know how a mode spells its rules.

The rules are those of pkg/proxy/topology.go, with KEP-1669 (terminating endpoints are the last resort), KEP-2433 and
KEP-3015 (hints by zone and by node), KEP-2086 (internalTrafficPolicy).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo

__all__ = ["EndpointCategories", "Refusal", "categorize_endpoints"]


class Refusal(StrEnum):
    """What meets traffic that finds no endpoint.

    A service without any endpoint answers at once; one whose endpoints all live on other nodes is silent, so that a
    client behind a balancer tries again and finds another node.
    """

    REJECT = "REJECT"
    DROP = "DROP"


class EndpointCategories(NamedTuple):
    """The endpoints of one service port by what they may be used for; each in rule order.

    Attributes:
        cluster: for traffic under policy Cluster.
        local: for traffic under policy Local.
        reachable: either of the two.
        has_endpoints: whether the service port has a usable endpoint anywhere.
        internal: what meets traffic to the cluster IP, ``None`` when it has endpoints.
        external: the same for node ports, external and load-balancer IPs.
    """

    cluster: tuple[EndpointInfo, ...]
    local: tuple[EndpointInfo, ...]
    reachable: tuple[EndpointInfo, ...]
    has_endpoints: bool
    internal: Refusal | None
    external: Refusal | None


def categorize_endpoints(port: ServicePortInfo, node: NodeFacts) -> EndpointCategories:
    """Sort the endpoints of ``port`` as seen from ``node``."""
    cluster = _cluster_endpoints(port.endpoints, node) if port.uses_cluster_endpoints else ()
    # Hints steer cluster-wide traffic only: an endpoint on this node is as near as can be.
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


def _either(
    endpoints: Sequence[EndpointInfo], cluster: tuple[EndpointInfo, ...], local: tuple[EndpointInfo, ...]
) -> tuple[EndpointInfo, ...]:
    if not local or not cluster:
        return cluster or local
    used = {endpoint.name for endpoint in (*cluster, *local)}
    return tuple([endpoint for endpoint in endpoints if endpoint.name in used])


def _refusal(has_endpoints: bool, *, none_here: bool) -> Refusal | None:
    if not has_endpoints:
        return Refusal.REJECT
    return Refusal.DROP if none_here else None


def _usable(endpoints: Sequence[EndpointInfo]) -> tuple[EndpointInfo, ...]:
    """The ready ones or, if there are none, those that still serve while they terminate."""
    ready = tuple([endpoint for endpoint in endpoints if endpoint.ready])
    return ready or tuple([endpoint for endpoint in endpoints if endpoint.serving and endpoint.terminating])


def _cluster_endpoints(endpoints: Sequence[EndpointInfo], node: NodeFacts) -> tuple[EndpointInfo, ...]:
    ready = [endpoint for endpoint in endpoints if endpoint.ready]
    return _hinted(ready, node) if ready else _usable(endpoints)


def _hinted(ready: Sequence[EndpointInfo], node: NodeFacts) -> tuple[EndpointInfo, ...]:
    """The ready endpoints that hints assign to this node.

    Hints of a kind count only if every ready endpoint has some and one of them names this node or its zone: while
    hints are incomplete, ignoring them is safer than overloading the few that have them.
    """
    for_node = tuple([endpoint for endpoint in ready if node.name in endpoint.for_nodes])
    if for_node and all(endpoint.for_nodes for endpoint in ready):
        return for_node
    for_zone = tuple([endpoint for endpoint in ready if node.zone and node.zone in endpoint.for_zones])
    if for_zone and all(endpoint.for_zones for endpoint in ready):
        return for_zone
    return tuple(ready)
