"""The rules and elements of one service port.

Owns ``render_port``, with one function for each kind of chain and for the elements of its frontends. Only used chains
exist: a service port without endpoints has at most the one for its source ranges.
"""

from collections.abc import Iterator, Sequence

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.engines.embedded.categories import EndpointCategories, TrafficRefusal, categorize_endpoints
from proxylab.engines.embedded.nftables import names
from proxylab.engines.embedded.nftables.names import PortChains, endpoint_base, port_chains
from proxylab.engines.embedded.nftables.rules import Element, PortRules
from proxylab.engines.embedded.nftables.scope import ProxyScope
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo

_LONGEST_COMMENT = 128
"""nft(8) refuses a longer one."""

_VERDICTS = {TrafficRefusal.REJECT: f"goto {names.REJECT}", TrafficRefusal.DROP: "drop"}


def render_port(proxy: ProxyScope, port: ServicePortInfo) -> PortRules:
    """The rules and elements of one service port."""
    endpoints = categorize_endpoints(port, proxy.node)
    chains = port_chains(port)
    protocol = port.protocol.lower()
    own = (
        {each.name: endpoint_base(port, each) for each in endpoints.reachable}
        if port.affinity_timeout is not None
        else {}
    )
    elements = _hairpins(endpoints, protocol)
    elements |= _internal(port, endpoints, chains, protocol)
    elements |= _external(port, endpoints, chains, protocol)
    rules = [*_choices(proxy, port, endpoints, chains, own)]
    used = [*([chains.cluster] if endpoints.cluster else ()), *([chains.local] if endpoints.local else ())]
    if endpoints.has_endpoints and port.externally_accessible:
        used.append(chains.external)
        rules += _external_chain(proxy, port, endpoints, chains)
    if _has_ranges(port):
        used.append(chains.firewall)
        rules.append(_source_ranges(proxy, port, chains.firewall))
    return PortRules(
        port.service,
        elements,
        (*used, *[f"endpoint-{base}" for base in own.values()]),
        tuple([(f"{names.AFFINITY}{base}", port.affinity_timeout or 0) for base in own.values()]),
        tuple(rules),
    )


def _has_ranges(port: ServicePortInfo) -> bool:
    return bool(port.load_balancer_vips and port.source_ranges)


def _hairpins(endpoints: EndpointCategories, protocol: str) -> dict[Element, str]:
    """Endpoints on this node, which may reach themselves; only masqueraded do they get their own answers."""
    return {
        (names.HAIRPINS, f"{each.ip} . {each.ip} . {protocol} . {each.port}"): ""
        for each in endpoints.reachable
        if each.is_local
    }


def _internal(
    port: ServicePortInfo, endpoints: EndpointCategories, chains: PortChains, protocol: str
) -> dict[Element, str]:
    """The cluster IP: captured or refused, never both."""
    address = str(port.cluster_ip)
    key = f"{address} . {protocol} . {port.port}"
    if endpoints.internal is None:
        chain = chains.local if port.internal_policy_local else chains.cluster
        return {(names.CLUSTER_IPS, address): "", (names.SERVICE_IPS, key): f" : goto {chain}"}
    return {
        (names.CLUSTER_IPS, address): "",
        (names.NO_ENDPOINT_SERVICES, key): _refused(port, endpoints.internal),
    }


def _external(
    port: ServicePortInfo, endpoints: EndpointCategories, chains: PortChains, protocol: str
) -> dict[Element, str]:
    """External IPs, load-balancer IPs and the node port.

    Under policy Local without a local endpoint they are captured as well as refused: packets that the external chain
    does not short-circuit stay untranslated and meet the refusal.
    """
    found: dict[Element, str] = {}
    to_chain, refusal = f" : goto {chains.external}", endpoints.external
    for address in (*port.external_ips, *port.load_balancer_vips):
        key = f"{address} . {protocol} . {port.port}"
        if endpoints.has_endpoints:
            found[names.SERVICE_IPS, key] = to_chain
        if refusal is not None:
            found[names.NO_ENDPOINT_SERVICES, key] = _refused(port, refusal)
    if _has_ranges(port):
        for address in port.load_balancer_vips:
            found[names.FIREWALL_IPS, f"{address} . {protocol} . {port.port}"] = f" : goto {chains.firewall}"
    if port.node_port:
        key = f"{protocol} . {port.node_port}"
        if endpoints.has_endpoints:
            found[names.SERVICE_NODE_PORTS, key] = to_chain
        if refusal is not None:
            found[names.NO_ENDPOINT_NODE_PORTS, key] = _refused(port, refusal)
    return found


def _refused(port: ServicePortInfo, refusal: TrafficRefusal) -> str:
    return f' comment "{port.name[:_LONGEST_COMMENT]}" : {_VERDICTS[refusal]}'


def _external_chain(
    proxy: ProxyScope, port: ServicePortInfo, endpoints: EndpointCategories, chains: PortChains
) -> Iterator[str]:
    """``external-``: traffic to a node port, an external IP or a load-balancer IP.

    Under policy Cluster the endpoint may be on another node, and its reply must come back here, so the chain
    masquerades everything. Under policy Local the source stays, and traffic from outside gets local endpoints only. The
    short-circuit serves traffic from inside the cluster like traffic to the cluster IP.
    """
    if not port.external_policy_local:
        yield f'{chains.external} {proxy.masquerade} comment "masquerade"'
    else:
        to_cluster = f"goto {chains.cluster}"
        if proxy.detector is not None:
            yield f'{chains.external} {proxy.detector.if_local} {to_cluster} comment "short-circuit pod traffic"'
        yield f'{chains.external} fib saddr type local {proxy.masquerade} comment "masquerade local traffic"'
        yield f'{chains.external} fib saddr type local {to_cluster} comment "short-circuit local traffic"'
    if endpoints.external is None:
        yield f"{chains.external} goto {chains.local if port.external_policy_local else chains.cluster}"


def _source_ranges(proxy: ProxyScope, port: ServicePortInfo, chain: str) -> str:
    """``firewall-``: drops sources outside the ranges.

    If the ranges include the node's address, the load balancer's are allowed too: some balancers put their address on
    the node's interfaces, and the kernel then prefers it as source.
    """
    allowed: list[IPNetwork | IPAddress] = [*port.source_ranges]
    if any(proxy.node_address in cidr for cidr in port.source_ranges):
        allowed += port.load_balancer_vips
    return f"{chain} {proxy.ip} saddr != {{ {', '.join(map(str, allowed))} }} drop"


def _choices(
    proxy: ProxyScope,
    port: ServicePortInfo,
    endpoints: EndpointCategories,
    chains: PortChains,
    own: dict[str, str],
) -> Iterator[str]:
    """``service-`` and ``local-``, and ``endpoint-`` where clients are remembered."""
    for chain, chosen in ((chains.cluster, endpoints.cluster), (chains.local, endpoints.local)):
        if not chosen:
            continue
        if own:
            yield from _remembering(proxy, chain, [own[each.name] for each in chosen])
        else:
            yield _translation(proxy, chain, port, chosen)
    for each in endpoints.reachable if own else ():
        base = own[each.name]
        yield f"endpoint-{base} update @{names.AFFINITY}{base} {{ {proxy.ip} saddr }}"
        yield f"endpoint-{base} meta l4proto {port.protocol.lower()} dnat to {each.name}"


def _translation(proxy: ProxyScope, chain: str, port: ServicePortInfo, endpoints: Sequence[EndpointInfo]) -> str:
    """One rule that chooses an endpoint at random and translates; a map for a single endpoint would cost time."""
    head = f"{chain} meta l4proto {port.protocol.lower()} dnat"
    if len(endpoints) == 1:
        return f"{head} to {endpoints[0].name}"
    choices = ", ".join([f"{number} : {each.ip} . {each.port}" for number, each in enumerate(endpoints)])
    return f"{head} {proxy.ip} addr . port to numgen random mod {len(endpoints)} map {{ {choices} }}"


def _remembering(proxy: ProxyScope, chain: str, bases: Sequence[str]) -> Iterator[str]:
    """Session affinity: the endpoint whose set has the client, else a random one."""
    for base in bases:
        yield f"{chain} {proxy.ip} saddr @{names.AFFINITY}{base} goto endpoint-{base}"
    choices = ", ".join([f"{number} : goto endpoint-{base}" for number, base in enumerate(bases)])
    yield f"{chain} numgen random mod {len(bases)} vmap {{ {choices} }}"
