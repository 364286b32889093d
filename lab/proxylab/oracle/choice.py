"""Which endpoints of a Service's port a node uses: readiness, termination, traffic policies, and hints.

``Candidate`` is an endpoint with its number for the port. ``choose`` takes all candidates of one port and one family,
and answers for one node. Under policy Local only the node's own endpoints count, and hints do not (KEP-2433).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import HEADLESS_LABEL, Endpoint, EndpointSlice, Service, ServicePort
from proxylab.encoding import Record
from proxylab.oracle.setting import ProxySetting

_TOPOLOGY_ANNOTATIONS: Final = ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints")


class Candidate(Record, frozen=True):
    """An endpoint, and its number for one port of the Service."""

    endpoint: Endpoint
    port: int

    @property
    def address(self) -> IPAddress:
        """Its first address, the only one that proxies use."""
        return self.endpoint.addresses[0]


class Choice(Record, frozen=True, kw_only=True):
    """The endpoints that a node uses, each once.

    Attributes:
        chosen: they get equal shares of the connections.
        is_elsewhere: whether another node uses an endpoint of the Service, if this one uses none.
        rows: why, by the ids of rows.
        undecided: why no row decides; empty if the rows do.
    """

    chosen: tuple[Candidate, ...]
    is_elsewhere: bool = False
    rows: tuple[str, ...] = ()
    undecided: str = ""


def candidates_of(port: ServicePort, family: Family, slices: Iterable[EndpointSlice]) -> tuple[Candidate, ...]:
    """The candidates for a port of the Service that has these slices.

    The port belongs to the endpoint: each pod gives a named target port its own number, and an author's slices may
    hold any. A slice's port belongs to the Service's port of the same name and protocol. Proxies skip the slices of a
    headless Service.
    """
    return tuple(
        Candidate(endpoint, own.port)
        for each in slices
        if each.address_type is family and HEADLESS_LABEL not in each.labels
        for own in each.ports
        if own.name == port.name and own.protocol is port.protocol and own.port
        for endpoint in each.endpoints
    )


def choose(
    service: Service, candidates: Sequence[Candidate], setting: ProxySetting, *, node: str, zone: str, is_local: bool
) -> Choice:
    """The endpoints that ``node`` in ``zone`` uses for a flow, to which policy Local applies or policy Cluster."""
    if undecided := _contradiction(candidates):
        return Choice(chosen=(), undecided=undecided)
    terminating = setting.row("terminating-endpoints")
    lasts = terminating is not None and terminating.then == "used"
    scope = [each for each in candidates if each.endpoint.node_name == node] if is_local else list(candidates)
    ready = [each for each in scope if each.endpoint.ready]
    found: list[str] = ["local-endpoints" if is_local else "all-endpoints"]
    if ready:
        near, why = (ready, ()) if is_local else _near(service, ready, setting, node, zone)
        if is_local and any(each.endpoint.for_zones or each.endpoint.for_nodes for each in ready):
            why = ("hints-under-local",)
        if any(is_last_resort(each) and not each.endpoint.ready for each in scope):
            found.append("terminating-is-not-ready")
        return Choice(chosen=_once(near), rows=(*found, "ready-endpoints", *why))
    last = [each for each in scope if is_last_resort(each)]
    if terminating is not None and last:
        found.append(terminating.id)
    if lasts and last:
        return Choice(chosen=_once(last), rows=tuple(found))
    elsewhere = any(each.endpoint.ready or (lasts and is_last_resort(each)) for each in candidates)
    return Choice(chosen=(), is_elsewhere=elsewhere, rows=tuple(found))


def is_last_resort(candidate: Candidate) -> bool:
    """Whether it terminates and still serves, so that a proxy uses it where no endpoint is ready (KEP-1669)."""
    return candidate.endpoint.serving and candidate.endpoint.terminating


def _near(
    service: Service, ready: list[Candidate], setting: ProxySetting, node: str, zone: str
) -> tuple[list[Candidate], tuple[str, ...]]:
    """Those of the ready endpoints to which hints lead, and the rows that say so (KEP-3015)."""
    if not any(each.endpoint.for_nodes or each.endpoint.for_zones for each in ready):
        return ready, ()
    by_node, by_zone = setting.row("node-hints"), setting.row("zone-hints")
    if by_node is not None and by_node.then == "followed" and all(each.endpoint.for_nodes for each in ready):
        here = [each for each in ready if node in each.endpoint.for_nodes]
        if here:
            return here, (by_node.id,)
    if by_zone is None or not _follows_zones(service, by_zone.then):
        return ready, (by_zone.id,) if by_zone else ()
    if not all(each.endpoint.for_zones for each in ready):
        return ready, ("incomplete-hints",)
    near = [each for each in ready if zone in each.endpoint.for_zones] if zone else []
    return (near, (by_zone.id,)) if near else (ready, ("no-hint-for-the-zone",))


def _follows_zones(service: Service, then: str) -> bool:
    asked = (service.annotations.get(each, "") for each in _TOPOLOGY_ANNOTATIONS)
    return then == "followed" or (then == "annotated" and any(each in ("Auto", "auto") for each in asked))


def _once(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each address and port once: an endpoint may be in two slices while it moves from one to the other."""
    return tuple({(each.address, each.port): each for each in candidates}.values())


def _contradiction(candidates: Sequence[Candidate]) -> str:
    """Why two slices leave open what an endpoint is; empty if they agree on each."""
    known: dict[tuple[IPAddress, int], Endpoint] = {}
    for each in candidates:
        first = known.setdefault((each.address, each.port), each.endpoint)
        if first is not each.endpoint and _state(first) != _state(each.endpoint):
            return f"two EndpointSlices disagree about {each.address}, and no document says which one counts"
    return ""


def _state(endpoint: Endpoint) -> tuple[object, ...]:
    conditions = endpoint.ready, endpoint.serving, endpoint.terminating
    return (*conditions, endpoint.node_name, endpoint.for_zones, endpoint.for_nodes)
