"""The service chains of a service port: what happens to a packet after a dispatch rule has matched it.

Owns the KUBE-SVC-, KUBE-SVL-, KUBE-EXT-, KUBE-FW- and KUBE-SEP- chains, one function per kind. Only used chains exist:
a service port without endpoints has none.
"""

from collections.abc import Iterator, Sequence

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.matches import FROM_LOCAL, comment, share, transport
from proxylab.engines.embedded.iptables.scope import PortScope
from proxylab.engines.embedded.ports import EndpointInfo

MARK_MASQ = names.MARK_MASQ.name


def owned_chains(scope: PortScope) -> tuple[str, ...]:
    """The chains that the service port uses."""
    endpoints, chains = scope.endpoints, scope.chains
    used = [chains.cluster] if endpoints.cluster else []
    if endpoints.local:
        used.append(chains.local)
    if scope.uses_external_chain:
        used.append(chains.external)
    if scope.uses_firewall_chain:
        used.append(chains.firewall)
    return (*used, *scope.endpoint_chains.values())


def service_chains(scope: PortScope) -> str:
    """The rules in those chains, in kube-proxy's order: a line each."""
    lines = [*cluster_ip_masquerade(scope)]
    if scope.uses_external_chain:
        lines += external(scope)
    if scope.uses_firewall_chain:
        lines += source_ranges(scope)
    if scope.endpoints.cluster:
        lines += balance(scope, scope.chains.cluster, scope.endpoints.cluster)
    if scope.endpoints.local:
        lines += balance(scope, scope.chains.local, scope.endpoints.local)
    for endpoint in scope.endpoints.reachable:
        lines += endpoint_rules(scope, endpoint)
    return "\n".join(lines)


def cluster_ip_masquerade(scope: PortScope) -> tuple[str, ...]:
    """First in the internal chain: masquerades clients that are not pods, so that replies come back to this node.

    A pod needs no masquerading: its packets and their replies both pass this node.
    """
    detector = scope.proxy.detector
    if scope.endpoints.internal is not None or not (scope.proxy.masquerade_all or detector):
        return ()
    unless_local = "" if scope.proxy.masquerade_all or detector is None else f" {detector.if_not_local}"
    remark = comment(f"{scope.port.name} cluster IP")
    return (f"-A {scope.internal_chain} {remark} {scope.cluster_ip_match}{unless_local} -j {MARK_MASQ}",)


def external(scope: PortScope) -> Iterator[str]:
    """KUBE-EXT-: traffic to a node port, an external IP or a load-balancer IP.

    Under policy Cluster the endpoint may be on another node, and its reply must come back here, so the chain
    masquerades everything. Under policy Local the source stays, and traffic from outside gets local endpoints only. The
    short-circuit serves traffic from inside the cluster like traffic to the cluster IP.
    """
    chain = scope.chains.external
    if scope.port.external_policy_local:
        yield from short_circuit(scope)
    else:
        remark = comment(f"masquerade traffic for {scope.port.name} external destinations")
        yield f"-A {chain} {remark} -j {MARK_MASQ}"
    if scope.endpoints.external is None:
        yield f"-A {chain} -j {scope.external_policy_chain}"


def short_circuit(scope: PortScope) -> Iterator[str]:
    """The short-circuit of policy Local: pods keep their address; the node's own traffic is masqueraded."""
    chain, detector = scope.chains.external, scope.proxy.detector
    traffic = f"traffic for {scope.port.name} external destinations"
    if detector is not None:
        yield f"-A {chain} {comment(f'pod {traffic}')} {detector.if_local} -j {scope.chains.cluster}"
    yield f"-A {chain} {comment(f'masquerade LOCAL {traffic}')} {FROM_LOCAL} -j {MARK_MASQ}"
    yield f"-A {chain} {comment(f'route LOCAL {traffic}')} {FROM_LOCAL} -j {scope.chains.cluster}"


def source_ranges(scope: PortScope) -> Iterator[str]:
    """KUBE-FW-: lets allowed sources pass; the filter table drops the rest.

    If the ranges include the node's address, they also include the load balancer's: some balancers put their address on
    the node's interfaces, and the kernel then prefers it as source.
    """
    chain, port = scope.chains.firewall, scope.port
    allowed: list[IPNetwork | IPAddress] = [*port.source_ranges]
    if any(scope.proxy.node_address in cidr for cidr in port.source_ranges):
        allowed += port.load_balancer_vips
    remark = comment(f"{port.name} loadbalancer IP")
    for source in allowed:
        yield f"-A {chain} {remark} -s {source!s} -j {scope.chains.external}"
    yield f"-A {chain} {comment(f'other traffic to {port.name} will be dropped by {names.PROXY_FIREWALL.name}')}"


def balance(scope: PortScope, chain: str, endpoints: Sequence[EndpointInfo]) -> Iterator[str]:
    """KUBE-SVC- and KUBE-SVL-: the client's endpoint by session affinity, else a random one."""
    if scope.port.affinity_timeout is not None:
        for endpoint in endpoints:
            yield remembered(scope, chain, endpoint, scope.port.affinity_timeout)
    count = len(endpoints)
    for index, endpoint in enumerate(endpoints):
        odds = share(index, count)
        target = scope.endpoint_chains[endpoint.name]
        yield f"-A {chain}{_to_endpoint(scope, endpoint)}{odds and f' {odds}'} -j {target}"


def remembered(scope: PortScope, chain: str, endpoint: EndpointInfo, seconds: int) -> str:
    """Session affinity: the endpoint that had this client less than ``seconds`` ago (xt_recent, one list each)."""
    target = scope.endpoint_chains[endpoint.name]
    recent = f"-m recent --name {target} --rcheck --seconds {seconds} --reap"
    return f"-A {chain}{_to_endpoint(scope, endpoint)} {recent} -j {target}"


def endpoint_rules(scope: PortScope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """KUBE-SEP-: one endpoint."""
    return hairpin(scope, endpoint) + translation(scope, endpoint)


def hairpin(scope: PortScope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """Masquerades an endpoint that reaches itself; with its own source address its reply would never leave it."""
    return (f"-A {scope.endpoint_chains[endpoint.name]}{scope.endpoint_comment} -s {endpoint.ip} -j {MARK_MASQ}",)


def translation(scope: PortScope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """The DNAT rule, which with session affinity also records the client."""
    chain = scope.endpoint_chains[endpoint.name]
    remember = "" if scope.port.affinity_timeout is None else f" -m recent --name {chain} --set"
    matches = f"{scope.endpoint_comment}{remember} {transport(scope.port.protocol)}"
    return (f"-A {chain}{matches} -j DNAT --to-destination {endpoint.name}",)


def _to_endpoint(scope: PortScope, endpoint: EndpointInfo) -> str:
    """The comment with a space before it; empty in large clusters."""
    return "" if scope.proxy.omits_comments else f" {comment(f'{scope.port.name} -> {endpoint.name}')}"
