"""Services and EndpointSlices that would spoil a rule, and with it the load of all others.

An API server refuses all of these, and this module does not repeat the rest of its validation. A store filled by hand
may hold them, as may one behind an older, laxer version of Kubernetes.
"""

import re

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import EndpointSlice, Service

__all__ = ["fault_of_service", "fault_of_slice"]

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
"""A name that cannot end a rule's comment."""

_MOST = 65535


def fault_of_service(service: Service) -> str:
    """Why no rule can be written for the Service; empty where one can."""
    for name in (service.namespace, service.name):
        if not _NAME.fullmatch(name):
            return f"the name {name!r} cannot stand in a rule"
    if service.affinity_timeout is not None and service.affinity_timeout < 1:
        return f"the session affinity timeout of {service.affinity_timeout} s is not positive"
    if not 0 <= service.health_check_node_port <= _MOST:
        return f"the health-check node port {service.health_check_node_port} is out of range"
    seen: set[tuple[str, Protocol]] = set()
    for port in service.ports:
        if port.name and not _NAME.fullmatch(port.name):
            return f"the port name {port.name!r} cannot stand in a rule"
        if not 1 <= port.port <= _MOST or not 0 <= port.node_port <= _MOST:
            return f"port {port.port} with node port {port.node_port} is out of range"
        if (port.name, port.protocol) in seen:
            return f"two {port.protocol} ports are named {port.name!r}"
        seen.add((port.name, port.protocol))
    return ""


def fault_of_slice(item: EndpointSlice) -> str:
    """Why no rule can be written for the slice's endpoints; empty where one can."""
    for port in item.ports:
        if not 0 <= port.port <= _MOST:
            return f"port {port.port} is out of range"
    version = 4 if item.address_type is Family.IPV4 else 6
    for endpoint in item.endpoints:
        if not endpoint.addresses:
            return "an endpoint has no address"
        if endpoint.addresses[0].version != version:
            return f"the endpoint {endpoint.addresses[0]} is not of the slice's address type {item.address_type}"
    return ""
