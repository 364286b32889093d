"""The fronts of a service port: rules in shared chains that recognise its addresses and ports.

Owns: the rules of one service port in KUBE-SERVICES, KUBE-NODEPORTS, KUBE-EXTERNAL-SERVICES and KUBE-PROXY-FIREWALL.
Must not: say what happens to a packet that has been recognised (``bodies`` does), except that nobody serves it.

A front with endpoints is captured in the nat table. One without is refused in the filter table, where the packet
arrives as it was sent. Under externalTrafficPolicy Local without a local endpoint both stand: what the KUBE-EXT- chain
does not short-circuit falls out of it untranslated, and meets the DROP.
"""

from collections.abc import Iterator

from lab.engines.embedded.categories import Refusal
from lab.engines.embedded.iptables import names
from lab.engines.embedded.iptables.matches import TO_LOCAL, comment, to_address, transport
from lab.engines.embedded.iptables.rules import Rule
from lab.engines.embedded.iptables.scope import Scope
from lab.ip import IPAddress, Protocol

__all__ = ["fronts"]


def fronts(scope: Scope) -> tuple[Rule, ...]:
    """All fronts of a service port, in kube-proxy's order."""
    return (
        *cluster_ip(scope),
        *(rule for address in scope.port.external_ips for rule in external_ip(scope, address)),
        *(rule for address in scope.port.load_balancer_vips for rule in load_balancer_vip(scope, address)),
        *(node_port(scope) if scope.port.node_port else ()),
        *(health_check(scope) if scope.port.health_check_node_port else ()),
    )


def cluster_ip(scope: Scope) -> Iterator[Rule]:
    """The cluster IP is either captured or refused, never both."""
    port, refusal = scope.port, scope.endpoints.internal
    destination = to_address(port.protocol, port.cluster_ip, port.port)
    if refusal is None:
        yield Rule(names.SERVICES, (comment(f"{port.name} cluster IP"), destination), scope.internal_chain.name)
    else:
        yield Rule(names.REJECT_INTERNAL, (_why(scope, refusal), destination), refusal)


def external_ip(scope: Scope, address: IPAddress) -> Iterator[Rule]:
    """One external IP."""
    destination = to_address(scope.port.protocol, address, scope.port.port)
    if scope.endpoints.has_endpoints:
        yield Rule(names.SERVICES, (comment(f"{scope.port.name} external IP"), destination), scope.chains.external.name)
    yield from _refused(scope, destination)


def load_balancer_vip(scope: Scope, address: IPAddress) -> Iterator[Rule]:
    """One load-balancer IP, by way of the source ranges where there are any.

    What the KUBE-FW- chain lets fall is dropped in the filter table, since the nat table may not drop.
    """
    name = scope.port.name
    destination = to_address(scope.port.protocol, address, scope.port.port)
    if scope.endpoints.has_endpoints:
        target = scope.chains.firewall if scope.uses_firewall_chain else scope.chains.external
        yield Rule(names.SERVICES, (comment(f"{name} loadbalancer IP"), destination), target.name)
    if scope.uses_firewall_chain:
        why = comment(f"{name} traffic not accepted by {scope.chains.firewall.name}")
        yield Rule(names.PROXY_FIREWALL, (why, destination), "DROP")
    yield from _refused(scope, destination)


def node_port(scope: Scope) -> Iterator[Rule]:
    """The node port. KUBE-NODEPORTS sees only what goes to the node's own addresses; the refusal must say so itself."""
    destination = f"{transport(scope.port.protocol)} --dport {scope.port.node_port}"
    if scope.endpoints.has_endpoints:
        yield Rule(names.NODE_PORTS, (comment(scope.port.name), destination), scope.chains.external.name)
    yield from _refused(scope, f"{TO_LOCAL} {destination}")


def health_check(scope: Scope) -> Iterator[Rule]:
    """Let a balancer ask whether this node has endpoints, even through a closed INPUT policy."""
    destination = f"{transport(Protocol.TCP)} --dport {scope.port.health_check_node_port}"
    why = comment(f"{scope.port.name} health check node port")
    yield Rule(names.ACCEPT_HEALTH_CHECKS, (why, destination), "ACCEPT")


def _refused(scope: Scope, destination: str) -> Iterator[Rule]:
    """The refusal of an external front that has no endpoint for traffic from outside."""
    refusal = scope.endpoints.external
    if refusal is not None:
        yield Rule(names.REJECT_EXTERNAL, (_why(scope, refusal), destination), refusal)


def _why(scope: Scope, refusal: Refusal) -> str:
    none = "no endpoints" if refusal is Refusal.REJECT else "no local endpoints"
    return comment(f"{scope.port.name} has {none}")
