"""A proxy's HTTP answers: health-check node ports, /healthz and /livez, and the metrics server.

They are kube-proxy's (pkg/proxy/healthcheck/service_health.go and proxy_health.go). ``control`` owns the sockets.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from proxylab.cluster.objects import Key
from proxylab.control.http_server import Answer
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.ports import ServicePortInfo

__all__ = ["health_check_ports", "healthz", "local_endpoints", "metrics", "service_health"]

_JSON = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def health_check_ports(ports: Iterable[ServicePortInfo]) -> dict[Key, int]:
    """The health-check node port of each Service that has one."""
    return {port.service: port.health_check_node_port for port in ports if port.health_check_node_port}


def local_endpoints(ports: Iterable[ServicePortInfo], service: Key) -> int:
    """How many addresses of ready endpoints the Service has on this node, over all its ports.

    A terminating endpoint does not count, though it may still get traffic: balancers should use other nodes.
    """
    own = (port for port in ports if port.service == service)
    return len({each.address for port in own for each in port.endpoints if each.is_local and each.ready})


def service_health(service: Key, count: int, *, healthy: bool) -> Answer:
    """The answer of a health-check node port, for any path."""
    body = {
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": count,
        "serviceProxyHealthy": healthy,
    }
    headers = {**_JSON, "X-Load-Balancing-Endpoint-Weight": str(count)}
    return Answer(200 if count and healthy else 503, json.dumps(body).encode(), headers)


def healthz(path: str, health: Health, now: float, clock: datetime) -> Answer:
    """/healthz, which includes the node's eligibility, and /livez, which does not."""
    if path not in ("/healthz", "/livez"):
        return _not_found()
    by_family = {str(family): health.is_healthy(family, now) for family in health.last_synced}
    eligible = health.node_eligible or path == "/livez"
    healthy = all(by_family.values())
    synced = [at for at in health.last_synced.values() if at is not None]
    age = 0.0 if healthy or not synced else now - min(synced)
    body = {
        # A healthy proxy is up to date now, however long ago its last sync was.
        "lastUpdated": str(datetime.fromtimestamp(clock.timestamp() - age, UTC)),
        "currentTime": str(clock),
        **({"nodeEligible": health.node_eligible} if path == "/healthz" else {}),
        "healthy": healthy and eligible,
        "status": {family: {"healthy": fine} for family, fine in by_family.items()},
    }
    return Answer(200 if healthy and eligible else 503, json.dumps(body).encode(), _JSON)


def metrics(path: str, counted: SyncMetrics, mode: str) -> Answer:
    """/metrics and /proxyMode."""
    answers: Mapping[str, bytes] = {"/proxyMode": mode.encode()}
    if path == "/metrics":
        return Answer(200, counted.text(), {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
    return Answer(200, answers[path], _TEXT) if path in answers else _not_found()


def _not_found() -> Answer:
    return Answer(404, b"404 page not found\n", _TEXT)
