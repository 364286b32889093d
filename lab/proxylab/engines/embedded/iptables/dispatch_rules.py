"""The dispatch rules of a service port: rules in shared chains that match its frontends.

Owns the rules of one service port in KUBE-SERVICES, KUBE-NODEPORTS, KUBE-EXTERNAL-SERVICES and KUBE-PROXY-FIREWALL,
refusals included; ``service_chains`` has the chains that they jump to.

The nat table captures a frontend with endpoints. The filter table refuses one without; its packets arrive there
untranslated. Under externalTrafficPolicy Local without a local endpoint both have a rule: packets that the KUBE-EXT-
chain does not short-circuit return from it untranslated, and meet the DROP.
"""

from collections.abc import Iterator

from proxylab.addresses import IPAddress, Protocol
from proxylab.engines.embedded.categories import TrafficRefusal
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.matches import (
    LOCALHOST_COUNTER,
    TO_LOCAL,
    comment,
    count_into,
    to_address,
    transport,
)
from proxylab.engines.embedded.iptables.rules import RuleLine, append_line
from proxylab.engines.embedded.iptables.scope import PortScope
from proxylab.engines.embedded.settings import LOOPBACK


def dispatch_rules(scope: PortScope) -> tuple[RuleLine, ...]:
    """The rules for all frontends of a service port, in kube-proxy's order."""
    port, lines = scope.port, [cluster_ip(scope)]
    for address in port.external_ips:
        lines += external_ip(scope, address)
    for address in port.load_balancer_vips:
        lines += load_balancer_vip(scope, address)
    if port.node_port:
        lines += node_port(scope)
    if port.health_check_node_port:
        lines.append(health_check(scope))
    return tuple(lines)


def cluster_ip(scope: PortScope) -> RuleLine:
    """The cluster IP: captured or refused, never both."""
    refusal = scope.endpoints.internal
    if refusal is None:
        remark = comment(f"{scope.port.name} cluster IP")
        return append_line(names.SERVICES, f"{remark} {scope.cluster_ip_match}", scope.internal_chain)
    return append_line(names.REJECT_INTERNAL, f"{_refusal_comment(scope, refusal)} {scope.cluster_ip_match}", refusal)


def external_ip(scope: PortScope, address: IPAddress) -> Iterator[RuleLine]:
    destination = to_address(scope.port.protocol, address, scope.port.port)
    if scope.endpoints.has_endpoints:
        remark = comment(f"{scope.port.name} external IP")
        yield append_line(names.SERVICES, f"{remark} {destination}", scope.chains.external)
    yield from _refused(scope, destination)


def load_balancer_vip(scope: PortScope, address: IPAddress) -> Iterator[RuleLine]:
    """One load-balancer IP, through KUBE-FW- where there are source ranges.

    The filter table drops what returns from the KUBE-FW- chain, since the nat table may not drop.
    """
    name = scope.port.name
    destination = to_address(scope.port.protocol, address, scope.port.port)
    if scope.endpoints.has_endpoints:
        target = scope.chains.firewall if scope.uses_firewall_chain else scope.chains.external
        yield append_line(names.SERVICES, f"{comment(f'{name} loadbalancer IP')} {destination}", target)
    if scope.uses_firewall_chain:
        remark = comment(f"{name} traffic not accepted by {scope.chains.firewall}")
        yield append_line(names.PROXY_FIREWALL, f"{remark} {destination}", "DROP")
    yield from _refused(scope, destination)


def node_port(scope: PortScope) -> Iterator[RuleLine]:
    """The node port. KUBE-NODEPORTS sees only packets to the node's own addresses; the refusal needs its own match."""
    destination = f"{transport(scope.port.protocol)} --dport {scope.port.node_port}"
    if scope.endpoints.has_endpoints:
        own = f"{comment(scope.port.name)} {transport(scope.port.protocol)}"
        if scope.proxy.counts_localhost:
            counted = f"-d {LOOPBACK} --dport {scope.port.node_port} {count_into(LOCALHOST_COUNTER)}"
            yield append_line(names.NODE_PORTS, f"{own} {counted}", scope.chains.external)
        yield append_line(names.NODE_PORTS, f"{own} --dport {scope.port.node_port}", scope.chains.external)
    yield from _refused(scope, f"{TO_LOCAL} {destination}")


def health_check(scope: PortScope) -> RuleLine:
    """The health-check node port, which stays open under a closed INPUT policy."""
    destination = f"{transport(Protocol.TCP)} --dport {scope.port.health_check_node_port}"
    remark = comment(f"{scope.port.name} health check node port")
    return append_line(names.ACCEPT_HEALTH_CHECKS, f"{remark} {destination}", "ACCEPT")


def _refused(scope: PortScope, destination: str) -> Iterator[RuleLine]:
    """The refusal of an external frontend that has no endpoint for traffic from outside."""
    refusal = scope.endpoints.external
    if refusal is not None:
        yield append_line(names.REJECT_EXTERNAL, f"{_refusal_comment(scope, refusal)} {destination}", refusal)


def _refusal_comment(scope: PortScope, refusal: TrafficRefusal) -> str:
    none = "no endpoints" if refusal is TrafficRefusal.REJECT else "no local endpoints"
    return comment(f"{scope.port.name} has {none}")
