"""The chains that a service port owns: what happens to a packet once a front has recognised it.

Owns: KUBE-SVC-, KUBE-SVL-, KUBE-EXT-, KUBE-FW- and KUBE-SEP- chains, one function per kind.
Must not: recognise addresses and ports of Services (``dispatch_rules`` does), but for the masquerade rule of the
cluster IP,
which needs the original destination.

Only chains that are used are made: a service port without endpoints owns none.
"""

from collections.abc import Iterator, Sequence

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.matches import FROM_LOCAL, comment, share, transport
from proxylab.engines.embedded.iptables.scope import Scope
from proxylab.engines.embedded.ports import EndpointInfo

__all__ = ["MARK_MASQ", "endpoint_rules", "owned_chains", "service_chains"]

MARK_MASQ = names.MARK_MASQ.name


def owned_chains(scope: Scope) -> tuple[str, ...]:
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


def service_chains(scope: Scope) -> str:
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


def cluster_ip_masquerade(scope: Scope) -> tuple[str, ...]:
    """First in the internal chain: who is no pod is masqueraded, or the endpoint's answer would not come back here.

    A pod's packet needs none of it: the way from pod to pod leads through this node in both directions.
    """
    detector = scope.proxy.detector
    if scope.endpoints.internal is not None or not (scope.proxy.masquerade_all or detector):
        return ()
    who = "" if scope.proxy.masquerade_all or detector is None else f" {detector.if_not_local}"
    why = comment(f"{scope.port.name} cluster IP")
    return (f"-A {scope.internal_chain} {why} {scope.to_cluster_ip}{who} -j {MARK_MASQ}",)


def external(scope: Scope) -> Iterator[str]:
    """KUBE-EXT-: what came to a node port, an external IP or a load-balancer IP.

    Under policy Cluster the endpoint may be on another node, whose answer must come back here: all is masqueraded.
    Under policy Local the source is kept, and local endpoints are all there is for traffic from outside; what starts
    in the cluster is served like traffic to the cluster IP, as if it had never left (the short-circuit).
    """
    chain = scope.chains.external
    if scope.port.external_policy_local:
        yield from short_circuit(scope)
    else:
        why = comment(f"masquerade traffic for {scope.port.name} external destinations")
        yield f"-A {chain} {why} -j {MARK_MASQ}"
    if scope.endpoints.external is None:
        yield f"-A {chain} -j {scope.external_policy_chain}"


def short_circuit(scope: Scope) -> Iterator[str]:
    """Pods keep their address; the node's own is one that an endpoint elsewhere could not answer past this node."""
    chain, detector = scope.chains.external, scope.proxy.detector
    traffic = f"traffic for {scope.port.name} external destinations"
    if detector is not None:
        yield f"-A {chain} {comment(f'pod {traffic}')} {detector.if_local} -j {scope.chains.cluster}"
    yield f"-A {chain} {comment(f'masquerade LOCAL {traffic}')} {FROM_LOCAL} -j {MARK_MASQ}"
    yield f"-A {chain} {comment(f'route LOCAL {traffic}')} {FROM_LOCAL} -j {scope.chains.cluster}"


def source_ranges(scope: Scope) -> Iterator[str]:
    """KUBE-FW-: sources that may use the load-balancer IPs go on; what falls out is dropped in the filter table.

    If the node itself is among them, so are its packets that already bear the load balancer's address: some balancers
    put it on the node's interfaces, and the kernel then prefers it as source.
    """
    chain, port = scope.chains.firewall, scope.port
    allowed: list[IPNetwork | IPAddress] = [*port.source_ranges]
    if any(scope.proxy.node_address in cidr for cidr in port.source_ranges):
        allowed += port.load_balancer_vips
    why = comment(f"{port.name} loadbalancer IP")
    for source in allowed:
        yield f"-A {chain} {why} -s {source!s} -j {scope.chains.external}"
    yield f"-A {chain} {comment(f'other traffic to {port.name} will be dropped by {names.PROXY_FIREWALL.name}')}"


def balance(scope: Scope, chain: str, endpoints: Sequence[EndpointInfo]) -> Iterator[str]:
    """KUBE-SVC- and KUBE-SVL-: the endpoint that remembers the client, else one at random."""
    if scope.port.affinity_timeout is not None:
        for endpoint in endpoints:
            yield remembered(scope, chain, endpoint, scope.port.affinity_timeout)
    count = len(endpoints)
    for index, endpoint in enumerate(endpoints):
        odds = share(index, count)
        target = scope.endpoint_chains[endpoint.name]
        yield f"-A {chain}{_to_endpoint(scope, endpoint)}{odds and f' {odds}'} -j {target}"


def remembered(scope: Scope, chain: str, endpoint: EndpointInfo, seconds: int) -> str:
    """Back to the endpoint that had this client less than ``seconds`` ago (xt_recent, one list per endpoint)."""
    target = scope.endpoint_chains[endpoint.name]
    recent = f"-m recent --name {target} --rcheck --seconds {seconds} --reap"
    return f"-A {chain}{_to_endpoint(scope, endpoint)} {recent} -j {target}"


def endpoint_rules(scope: Scope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """KUBE-SEP-: one endpoint."""
    return hairpin(scope, endpoint) + translation(scope, endpoint)


def hairpin(scope: Scope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """An endpoint that has been given to itself must see another source, or its answer would never leave it."""
    return (f"-A {scope.endpoint_chains[endpoint.name]}{scope.of_port} -s {endpoint.ip} -j {MARK_MASQ}",)


def translation(scope: Scope, endpoint: EndpointInfo) -> tuple[str, ...]:
    """The translation, which with session affinity also remembers the client."""
    chain = scope.endpoint_chains[endpoint.name]
    remember = "" if scope.port.affinity_timeout is None else f" -m recent --name {chain} --set"
    matches = f"{scope.of_port}{remember} {transport(scope.port.protocol)}"
    return (f"-A {chain}{matches} -j DNAT --to-destination {endpoint.name}",)


def _to_endpoint(scope: Scope, endpoint: EndpointInfo) -> str:
    """The comment, with a space before it; none in large clusters."""
    return "" if scope.proxy.brief else f" {comment(f'{scope.port.name} -> {endpoint.name}')}"
