"""What proxies answer to HTTP: at the health-check node port of a Service, about their node (KEP-3836), and metrics."""

from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import Service, ServiceType, TrafficPolicy
from proxylab.encoding import Record
from proxylab.oracle.answers import HealthAnswer
from proxylab.oracle.frontends import node_port_address
from proxylab.oracle.moment import Moment, ServedPort, is_proxied
from proxylab.scenario.words import Frontend

_HEALTHY: Final = 200
_UNHEALTHY: Final = 503
_MEASURED: Final = ("/metrics", "/proxyMode")
_STATUS: Final = {"answers": _HEALTHY, "fails": _UNHEALTHY, "unknown": 404}


class HealthCheck(Record, frozen=True, kw_only=True):
    """An answer to a health check, and the rows that say so."""

    answer: HealthAnswer
    rows: tuple[str, ...]


def health_check(moment: Moment, node: str, address: IPAddress, port: int) -> HealthCheck | None:
    """What ``node`` answers at the health-check node port of a Service; ``None`` if none listens there."""
    for service in moment.services.values():
        if port and service.health_check_node_port == port and _is_checked(service):
            opening = node_port_address(moment, node, address)
            if not opening.is_open:
                return None
            count = _local_endpoints(moment, service, node)
            status = _HEALTHY if count else _UNHEALTHY
            row = "health-check-with-endpoint" if count else "health-check-without-endpoint"
            return HealthCheck(answer=HealthAnswer(status=status, local_endpoints=count), rows=(row, opening.row))
    return None


def _is_checked(service: Service) -> bool:
    is_local = service.external_traffic_policy is TrafficPolicy.LOCAL
    return is_proxied(service) and service.type is ServiceType.LOAD_BALANCER and is_local


def _local_endpoints(moment: Moment, service: Service, node: str) -> int:
    """How many ready endpoints of the Service are on the node; those that terminate do not count (KEP-1669)."""
    found: set[IPAddress] = set()
    for port in service.ports:
        for family in service.ip_families:
            candidates = moment.candidates(ServedPort(Frontend.NODE_PORT, service, port), Family(family))
            found.update(each.address for each in candidates if each.endpoint.ready and each.endpoint.node_name == node)
    # A pod has an address in each family, and each counts for the pod once.
    by_family = [sum(each.version == version for each in found) for version in (4, 6)]
    return max(by_family)


def node_health(moment: Moment, node: str, address: IPAddress, port: int, path: str) -> HealthCheck | None:
    """What the proxy of ``node`` answers about the node and itself; ``None`` if it does not listen there."""
    setting = moment.setting_of(node)
    if _listens(setting.configuration.metrics, address, port) and path in _MEASURED:
        return HealthCheck(answer=HealthAnswer(status=_HEALTHY), rows=("metrics",))
    if not _listens(setting.configuration.healthz, address, port):
        return None
    row = setting.row("livez" if path == "/livez" else "healthz")
    if path != "/livez" and node in moment.nodes and moment.nodes[node].is_leaving:
        row = setting.row("leaving-node")
    if row is None:
        return None
    status = _STATUS[row.then]
    return HealthCheck(answer=HealthAnswer(status=status), rows=(row.id,))


def _listens(at: SocketAddress, address: IPAddress, port: int) -> bool:
    return at.port == port and (at.address.is_unspecified or at.address == address)
