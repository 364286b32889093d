"""The chains that a service port owns: what happens to a packet once a front has recognised it.

Owns: KUBE-SVC-, KUBE-SVL-, KUBE-EXT-, KUBE-FW- and KUBE-SEP- chains, one function per kind.
Must not: recognise addresses and ports of Services (``fronts`` does), but for the masquerade rule of the cluster IP,
which needs the original destination.

Only chains that are used are made: a service port without endpoints owns none.
"""

from collections.abc import Iterator, Sequence

from lab.engines.embedded.iptables import names
from lab.engines.embedded.iptables.matches import FROM_LOCAL, comment, share, to_address, transport
from lab.engines.embedded.iptables.names import Chain
from lab.engines.embedded.iptables.rules import Rule
from lab.engines.embedded.iptables.scope import Scope
from lab.engines.embedded.ports import EndpointInfo

__all__ = ["bodies", "owned_chains"]


def owned_chains(scope: Scope) -> tuple[Chain, ...]:
    """The chains that the service port uses."""
    used = (
        (scope.endpoints.cluster, scope.chains.cluster),
        (scope.endpoints.local, scope.chains.local),
        (scope.uses_external_chain, scope.chains.external),
        (scope.uses_firewall_chain, scope.chains.firewall),
    )
    return (*(chain for wanted, chain in used if wanted), *scope.endpoint_chains.values())


def bodies(scope: Scope) -> tuple[Rule, ...]:
    """The rules in those chains, in kube-proxy's order."""
    return (
        *cluster_ip_masquerade(scope),
        *(external(scope) if scope.uses_external_chain else ()),
        *(source_ranges(scope) if scope.uses_firewall_chain else ()),
        *balance(scope, scope.chains.cluster, scope.endpoints.cluster),
        *balance(scope, scope.chains.local, scope.endpoints.local),
        *[rule for endpoint in scope.endpoints.reachable for rule in endpoint_rules(scope, endpoint)],
    )


def cluster_ip_masquerade(scope: Scope) -> Iterator[Rule]:
    """First in the internal chain: who is no pod is masqueraded, or the endpoint's answer would not come back here.

    A pod's packet needs none of it: the way from pod to pod leads through this node in both directions.
    """
    detector, port = scope.proxy.detector, scope.port
    if scope.endpoints.internal is not None or not (scope.proxy.masquerade_all or detector):
        return
    condition = "" if scope.proxy.masquerade_all or detector is None else detector.if_not_local
    yield Rule(
        scope.internal_chain,
        (comment(f"{port.name} cluster IP"), to_address(port.protocol, port.cluster_ip, port.port), condition),
        names.MARK_MASQ.name,
    )


def external(scope: Scope) -> Iterator[Rule]:
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
        yield Rule(chain, (why,), names.MARK_MASQ.name)
    if scope.endpoints.external is None:
        yield Rule(chain, (), scope.external_policy_chain.name)


def short_circuit(scope: Scope) -> Iterator[Rule]:
    """Pods keep their address; the node's own is one that an endpoint elsewhere could not answer past this node."""
    chain, detector = scope.chains.external, scope.proxy.detector
    traffic = f"traffic for {scope.port.name} external destinations"
    if detector is not None:
        yield Rule(chain, (comment(f"pod {traffic}"), detector.if_local), scope.chains.cluster.name)
    yield Rule(chain, (comment(f"masquerade LOCAL {traffic}"), FROM_LOCAL), names.MARK_MASQ.name)
    yield Rule(chain, (comment(f"route LOCAL {traffic}"), FROM_LOCAL), scope.chains.cluster.name)


def source_ranges(scope: Scope) -> Iterator[Rule]:
    """KUBE-FW-: sources that may use the load-balancer IPs go on; what falls out is dropped in the filter table.

    If the node itself is among them, so are its packets that already bear the load balancer's address: some balancers
    put it on the node's interfaces, and the kernel then prefers it as source.
    """
    chain, port = scope.chains.firewall, scope.port
    why = comment(f"{port.name} loadbalancer IP")
    for cidr in port.source_ranges:
        yield Rule(chain, (why, f"-s {cidr}"), scope.chains.external.name)
    if any(scope.proxy.node_address in cidr for cidr in port.source_ranges):
        for address in port.load_balancer_vips:
            yield Rule(chain, (why, f"-s {address!s}"), scope.chains.external.name)
    yield Rule(chain, (comment(f"other traffic to {port.name} will be dropped by {names.PROXY_FIREWALL.name}"),))


def balance(scope: Scope, chain: Chain, endpoints: Sequence[EndpointInfo]) -> Iterator[Rule]:
    """KUBE-SVC- and KUBE-SVL-: the endpoint that remembers the client, else one at random."""
    if scope.port.affinity_timeout is not None:
        for endpoint in endpoints:
            yield remembered(scope, chain, endpoint, scope.port.affinity_timeout)
    for index, endpoint in enumerate(endpoints):
        target = scope.endpoint_chains[endpoint.name].name
        yield Rule(chain, (_to_endpoint(scope, endpoint), share(index, len(endpoints))), target)


def remembered(scope: Scope, chain: Chain, endpoint: EndpointInfo, seconds: int) -> Rule:
    """Back to the endpoint that had this client less than ``seconds`` ago (xt_recent, one list per endpoint)."""
    target = scope.endpoint_chains[endpoint.name].name
    recent = f"-m recent --name {target} --rcheck --seconds {seconds} --reap"
    return Rule(chain, (_to_endpoint(scope, endpoint), recent), target)


def endpoint_rules(scope: Scope, endpoint: EndpointInfo) -> tuple[Rule, ...]:
    """KUBE-SEP-: one endpoint."""
    return hairpin(scope, endpoint) + translation(scope, endpoint)


def hairpin(scope: Scope, endpoint: EndpointInfo) -> tuple[Rule, ...]:
    """An endpoint that has been given to itself must see another source, or its answer would never leave it."""
    chain = scope.endpoint_chains[endpoint.name]
    return (Rule(chain, (scope.of_port, f"-s {endpoint.address!s}"), names.MARK_MASQ.name),)


def translation(scope: Scope, endpoint: EndpointInfo) -> tuple[Rule, ...]:
    """The translation, which with session affinity also remembers the client."""
    chain = scope.endpoint_chains[endpoint.name]
    remember = "" if scope.port.affinity_timeout is None else f"-m recent --name {chain.name} --set"
    target = f"DNAT --to-destination {endpoint.name}"
    return (Rule(chain, (scope.of_port, remember, transport(scope.port.protocol)), target),)


def _to_endpoint(scope: Scope, endpoint: EndpointInfo) -> str:
    return "" if scope.proxy.brief else comment(f"{scope.port.name} -> {endpoint.name}")
