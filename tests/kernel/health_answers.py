"""Defects in what health servers answer: rows of the table in ``breakages``."""

from breakages import NODE_WORK, PORTS, Breakage

__all__ = ["HEALTH_ANSWERS"]

_COUNTED = "healthCheckNodePort names its Service and weights the node by its two pods"
_UNCOUNTED = "healthCheckNodePort of a node without pods says 503, weight 0, and the same type"
_HEALTHZ = "healthz of the proxy is JSON that says the node is eligible"
_FILE = "loadbalancer/what-a-health-check-says"
_TERMINATING = "healthCheckNodePort of a node with only a terminating endpoint answers 503"
_READY = "healthCheckNodePort of a node with a ready endpoint answers 200"
_FALLBACK = "terminating/local-policy-fallback"

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
        "livez asks whether the node stays",
        NODE_WORK,
        "healthz",
        "lambda path, *of, whole=module.healthz, **named: whole('/healthz', *of, **named)",
        {
            "health/healthz-of-a-node-being-removed": {
                "livez of a node with the taint ToBeDeletedByClusterAutoscaler answers 200",
                "livez of a node whose Node object is being deleted answers 200 over IPv6",
            }
        },
    ),
    Breakage(
        "health checks weight no node",
        NODE_WORK,
        "service_health",
        (
            "lambda service, count, healthy, whole=module.service_health:"
            " module.HttpResponse((a := whole(service, count, healthy=healthy)).status, a.body, module._JSON)"
        ),
        {_FILE: {_COUNTED, _UNCOUNTED}},
    ),
    Breakage(
        "health checks name Services of the namespace default",
        NODE_WORK,
        "service_health",
        (
            "lambda service, count, healthy, whole=module.service_health:"
            " whole(module.ObjectKey('default', service.name), count, healthy=healthy)"
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
    Breakage(
        "health checks answer 200 in any case",
        NODE_WORK,
        "service_health",
        (
            "lambda *of, whole=module.service_health, **named:"
            " module.HttpResponse(200, (a := whole(*of, **named)).body, a.headers)"
        ),
        {_FALLBACK: {_TERMINATING}},
    ),
    Breakage(
        "health checks answer at the next port",
        PORTS,
        "_health_check_node_port",
        "lambda service, whole=module._health_check_node_port: (port := whole(service)) and port + 1",
        {_FALLBACK: {_TERMINATING, _READY}},
    ),
    Breakage(
        "health checks say nothing of endpoints in their answers",
        NODE_WORK,
        "service_health",
        (
            "lambda *of, whole=module.service_health, **named:"
            " module.HttpResponse((a := whole(*of, **named)).status, b'{}', a.headers)"
        ),
        {_FALLBACK: {_TERMINATING, _READY}},
    ),
    Breakage(
        "health checks count endpoints that terminate",
        NODE_WORK,
        "local_endpoints",
        "lambda ports, service: len({e.address for p in ports for e in p.endpoints if e.is_local and e.serving})",
        {_FALLBACK: {_TERMINATING}},
    ),
    Breakage(
        "health checks count endpoints of all nodes",
        NODE_WORK,
        "local_endpoints",
        (
            "lambda ports, service:"
            " len({e.address for p in ports if p.service == service for e in p.endpoints if e.ready})"
        ),
        {_FALLBACK: {_TERMINATING}},
    ),
]
