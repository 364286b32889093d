"""Defects in what health servers answer: rows of the table in ``breakages``."""

from breakages import NODE_WORK, Breakage

__all__ = ["HEALTH_ANSWERS"]

_COUNTED = "healthCheckNodePort names its Service and weights the node by its two pods"
_UNCOUNTED = "healthCheckNodePort of a node without pods says 503, weight 0, and the same type"
_HEALTHZ = "healthz of the proxy is JSON that says the node is eligible"
_FILE = "loadbalancer/what-a-health-check-says"

HEALTH_ANSWERS = [
    Breakage(
        "health servers say nothing of their answers' type",
        NODE_WORK,
        "_JSON",
        "{}",
        {_FILE: {_COUNTED, _UNCOUNTED, _HEALTHZ}},
    ),
    Breakage(
        "browsers may guess the type of a health check",
        NODE_WORK,
        "_JSON",
        "{'Content-Type': 'application/json'}",
        {_FILE: {_COUNTED, _UNCOUNTED, _HEALTHZ}},
    ),
    Breakage(
        "health checks weight no node",
        NODE_WORK,
        "service_health",
        (
            "lambda service, count, healthy, whole=module.service_health:"
            " module.Answer((a := whole(service, count, healthy=healthy)).status, a.body, module._JSON)"
        ),
        {_FILE: {_COUNTED, _UNCOUNTED}},
    ),
    Breakage(
        "health checks name Services of the namespace default",
        NODE_WORK,
        "service_health",
        (
            "lambda service, count, healthy, whole=module.service_health:"
            " whole(module.Key('default', service.name), count, healthy=healthy)"
        ),
        {_FILE: {_COUNTED, _UNCOUNTED}},
    ),
    Breakage(
        "health checks count an endpoint at each of its ports",
        NODE_WORK,
        "local_endpoints",
        "lambda ports, service: sum(e.is_local and e.ready for p in ports for e in p.endpoints)",
        {_FILE: {_COUNTED}},
    ),
    Breakage(
        "health checks count endpoints that are not ready",
        NODE_WORK,
        "local_endpoints",
        "lambda ports, service: len({e.address for p in ports for e in p.endpoints if e.is_local})",
        {_FILE: {_COUNTED}},
    ),
]
