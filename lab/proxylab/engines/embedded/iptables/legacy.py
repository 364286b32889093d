"""The rules of kube-proxy 1.23, which books and old clusters show.

Owns the generation ``V1_23``: its fixed chains and jumps, and its chains of a service port; and ``kubelet_rules``, on
which the real kube-proxy of that time relies. The current generation is in ``fixed``, ``dispatch_rules`` and
``service_chains``, from which this module takes what both share.

How it differs from the current one:

* One chain, KUBE-XLB-, did the work of today's KUBE-EXT- and KUBE-SVL-, and only under externalTrafficPolicy Local.
  Without a local endpoint it marked packets for dropping.
* Every load-balancer IP had a KUBE-FW- chain, with or without source ranges; it ended in KUBE-MARK-DROP.
* KUBE-SVC- masqueraded for node ports and external IPs as well as for the cluster IP. Pods kept their address at an
  external IP.
* Source ranges that include the node's address did not let the node in, as they do now: where 1.23.17 serves both
  families, it takes 0.0.0.0 and :: for the node's addresses.
* A mark in the nat table, 0x8000, dropped packets later, in KUBE-FIREWALL, which only INPUT and OUTPUT called, so
  forwarded packets escaped it. The kubelet wrote both chains until KEP-3178. The lab has no kubelet, so this engine
  writes them itself, and the lab writes them for the real one.
* internalTrafficPolicy Local left a Service with local endpoints only, for traffic from outside as well, and did
  nothing beside externalTrafficPolicy Local. Hints by zone were still behind a gate, and so were terminating endpoints.
* There was no ipMode: nodes served the address of each load balancer.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.dispatch_rules import health_check
from proxylab.engines.embedded.iptables.fixed import (
    JUMPS,
    NODE_PORTS_REMARK,
    SHARED_CHAINS,
    loopback_guard,
    mark_for_masquerading,
    postrouting,
)
from proxylab.engines.embedded.iptables.matches import FROM_LOCAL, TO_LOCAL, comment, mark, share, to_address, transport
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.render import CURRENT
from proxylab.engines.embedded.iptables.rules import Generation, PortRules, Rule, RuleLine, append_line
from proxylab.engines.embedded.iptables.scope import PortScope, ProxyScope
from proxylab.engines.embedded.iptables.service_chains import MARK_MASQ, endpoint_rules
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo
from proxylab.engines.embedded.settings import LOOPBACK, ProxySettings

MARK_DROP = Chain(Table.NAT, "KUBE-MARK-DROP")
DROP_MARK = 0x8000
"""``--iptables-drop-bit`` of the kubelet, 15 by default."""


def _shared_chains(_family: Family, _settings: ProxySettings) -> tuple[Chain, ...]:
    own = (chain for chain in SHARED_CHAINS if chain != names.PROXY_FIREWALL)
    return (*own, MARK_DROP, names.FIREWALL)


def _kept_chains(_family: Family, _settings: ProxySettings) -> tuple[Chain, ...]:
    return names.CANARIES


def _fixed_rules(family: Family, settings: ProxySettings) -> tuple[Rule, ...]:
    related = "-m conntrack --ctstate RELATED,ESTABLISHED"
    masquerading = f"-m mark --mark {mark(settings.masquerade_mark)}"
    return (
        *postrouting(settings),
        *mark_for_masquerading(settings),
        *_of_kubelet(family),
        Rule(names.FORWARD, ("-m conntrack --ctstate INVALID",), "DROP"),
        Rule(names.FORWARD, (comment("kubernetes forwarding rules"), masquerading), "ACCEPT"),
        Rule(names.FORWARD, (comment("kubernetes forwarding conntrack rule"), related), "ACCEPT"),
    )


def _of_kubelet(family: Family) -> tuple[Rule, ...]:
    to_drop = f"-m mark --mark {mark(DROP_MARK)}"
    return (
        Rule(MARK_DROP, (), f"MARK --or-mark {DROP_MARK:#08x}"),
        Rule(names.FIREWALL, (comment("kubernetes firewall for dropping marked packets"), to_drop), "DROP"),
        *(loopback_guard() if family is Family.IPV4 else ()),
    )


def kubelet_rules(family: Family) -> str:
    """The chains that a kubelet makes before kube-proxy starts, for iptables-restore.

    kube-proxy before 1.25 jumps to KUBE-MARK-DROP, and makes it if it is missing, but leaves it empty.
    """
    rules = _of_kubelet(family)
    lines = []
    for chain in (MARK_DROP, names.FIREWALL):
        jumps = [jump.line("-I") for jump in JUMPS if jump.target == chain.name]
        own = [rule.line() for rule in rules if rule.chain == chain]
        lines += [f"*{chain.table}", f":{chain.name} - [0:0]", *own, *jumps, "COMMIT"]
    return "\n".join(lines) + "\n"


def _node_port_jumps(family: Family, settings: ProxySettings, node: NodeFacts) -> tuple[Rule, ...]:
    """Today's jumps, but with all loopback addresses, even that of IPv6: what is sent there gets no answer."""
    chosen = node_port_addresses(family, settings, node)
    matches = (TO_LOCAL,) if chosen is None else (f"-d {address}" for address in chosen)
    return tuple(Rule(names.SERVICES, (NODE_PORTS_REMARK, each), names.NODE_PORTS.name) for each in matches)


def _render_port(proxy: ProxyScope, port: ServicePortInfo) -> PortRules:
    """The rules of one service port."""
    only_local = port.internal_policy_local and not port.external_policy_local
    usable = (each for each in port.endpoints if each.ready and (each.is_local or not only_local))
    ready = tuple([each._replace(for_zones=(), for_nodes=()) for each in usable])
    scope = PortScope.of(proxy, port._replace(endpoints=ready))
    cluster = scope.endpoints.cluster or scope.endpoints.local
    chain = scope.chains.external.replace("KUBE-EXT-", "KUBE-XLB-")
    local = port.external_policy_local
    dispatch_rules = (*_dispatch_rules(scope, bool(ready), chain if local else scope.chains.cluster),)
    if not ready:
        # The chain for Local policy was there even without endpoints; nothing led to it.
        return PortRules(port.service, dispatch_rules, (chain,) if local else (), "")
    firewall = bool(port.load_balancer_vips)
    owned = (
        scope.chains.cluster,
        *((chain,) if local else ()),
        *((scope.chains.firewall,) if firewall else ()),
        *scope.endpoint_chains.values(),
    )
    service_chains = (
        *_masquerading(scope),
        *(_firewall(scope, chain) if firewall else ()),
        *_balanced(scope, scope.chains.cluster, cluster),
        *[rule for each in cluster for rule in endpoint_rules(scope, each)],
        *(_external_local(scope, chain, cluster) if local else ()),
    )
    return PortRules(port.service, dispatch_rules, owned, "\n".join(service_chains))


class _OutsideAddress(Struct, frozen=True):
    """An address for clients outside of the cluster: what it is, and the chain to which it leads."""

    address: IPAddress
    what: str
    chain: str


def _dispatch_rules(scope: PortScope, served: bool, external: str) -> Iterator[RuleLine]:
    """The dispatch rules of a service port; 1.23 refused by REJECT only, never by DROP."""
    port = scope.port
    none = comment(f"{port.name} has no endpoints")
    if served:
        remark = comment(f"{port.name} cluster IP")
        yield append_line(names.SERVICES, f"{remark} {scope.cluster_ip_match}", scope.chains.cluster)
    else:
        yield append_line(names.REJECT_INTERNAL, f"{none} {scope.cluster_ip_match}", "REJECT")
    outside = [_OutsideAddress(each, "external IP", external) for each in port.external_ips]
    outside += [_OutsideAddress(each, "loadbalancer IP", scope.chains.firewall) for each in port.load_balancer_vips]
    for each in outside:
        destination = to_address(port.protocol, each.address, port.port)
        if served:
            yield append_line(names.SERVICES, f"{comment(f'{port.name} {each.what}')} {destination}", each.chain)
        else:
            yield append_line(names.REJECT_EXTERNAL, f"{none} {destination}", "REJECT")
    if port.node_port:
        yield from _node_port(scope, served, external)
    if port.health_check_node_port:
        yield health_check(scope)


def _node_port(scope: PortScope, served: bool, external: str) -> Iterator[RuleLine]:
    port = scope.port
    destination = f"{transport(port.protocol)} --dport {port.node_port}"
    if not served:
        none = comment(f"{port.name} has no endpoints")
        yield append_line(names.REJECT_EXTERNAL, f"{none} {TO_LOCAL} {destination}", "REJECT")
        return
    own = f"{comment(port.name)} {destination}"
    if port.external_policy_local:
        loopback = LOOPBACK if port.cluster_ip.version == 4 else "::1/128"
        yield append_line(names.NODE_PORTS, f"{own} -s {loopback}", MARK_MASQ)
    yield append_line(names.NODE_PORTS, own, external)


def _masquerading(scope: PortScope) -> Iterator[str]:
    """First in KUBE-SVC-: the frontends whose replies must come back through this node."""
    port, proxy, chain = scope.port, scope.proxy, scope.chains.cluster
    cluster = f"-A {chain} {comment(f'{port.name} cluster IP')} {scope.cluster_ip_match}"
    if proxy.masquerade_all:
        yield f"{cluster} -j {MARK_MASQ}"
    elif proxy.detector is not None:
        yield f"{cluster} {proxy.detector.if_not_local} -j {MARK_MASQ}"
    if port.external_policy_local:
        return
    unless_local = f" {proxy.detector.if_not_local}" if proxy.detector is not None else ""
    for address in port.external_ips:
        remark = comment(f"{port.name} external IP")
        yield f"-A {chain} {remark} {to_address(port.protocol, address, port.port)}{unless_local} -j {MARK_MASQ}"
    if port.node_port:
        yield f"-A {chain} {comment(port.name)} {transport(port.protocol)} --dport {port.node_port} -j {MARK_MASQ}"


def _firewall(scope: PortScope, external_local: str) -> Iterator[str]:
    """KUBE-FW-: its rules, once for each address. The last one marks packets from sources that are not allowed."""
    port = scope.port
    begin = f"-A {scope.chains.firewall} {comment(f'{port.name} loadbalancer IP')}"
    target = external_local if port.external_policy_local else scope.chains.cluster
    with_node = any(cidr.network_address.is_unspecified for cidr in port.source_ranges)
    for vip in port.load_balancer_vips:
        if not port.external_policy_local:
            yield f"{begin} -j {MARK_MASQ}"
        if not port.source_ranges:
            yield f"{begin} -j {target}"
        for cidr in port.source_ranges:
            yield f"{begin} -s {cidr} -j {target}"
        if with_node:
            yield f"{begin} -s {vip} -j {target}"
        yield f"{begin} -j {MARK_DROP.name}"


def _external_local(scope: PortScope, chain: str, endpoints: Sequence[EndpointInfo]) -> Iterator[str]:
    """KUBE-XLB-: the short-circuit for pods and the node itself, then this node's endpoints or the drop mark."""
    port, cluster = scope.port, scope.chains.cluster
    if scope.proxy.detector is not None:
        remark = comment("Redirect pods trying to reach external loadbalancer VIP to clusterIP")
        yield f"-A {chain} {remark} {scope.proxy.detector.if_local} -j {cluster}"
    masquerade = comment(f"masquerade LOCAL traffic for {port.name} LB IP")
    yield f"-A {chain} {masquerade} {FROM_LOCAL} -j {MARK_MASQ}"
    route = comment(f"route LOCAL traffic for {port.name} LB IP to service chain")
    yield f"-A {chain} {route} {FROM_LOCAL} -j {cluster}"
    local = [each for each in endpoints if each.is_local]
    if not local:
        yield f"-A {chain} {comment(f'{port.name} has no local endpoints')} -j {MARK_DROP.name}"
    yield from _balanced(scope, chain, local)


def _balanced(scope: PortScope, chain: str, endpoints: Sequence[EndpointInfo]) -> Iterator[str]:
    yield from _remembered(scope, chain, endpoints)
    for index, each in enumerate(endpoints):
        odds = share(index, len(endpoints))
        yield f"-A {chain}{scope.endpoint_comment}{odds and f' {odds}'} -j {scope.endpoint_chains[each.name]}"


def _remembered(scope: PortScope, chain: str, endpoints: Sequence[EndpointInfo]) -> Iterator[str]:
    if scope.port.affinity_timeout is not None:
        for each in endpoints:
            target = scope.endpoint_chains[each.name]
            recent = f"-m recent --name {target} --rcheck --seconds {scope.port.affinity_timeout} --reap"
            yield f"-A {chain}{scope.endpoint_comment} {recent} -j {target}"


_OF_KUBELET = tuple(jump for jump in JUMPS if jump.target == names.FIREWALL.name)
_OWN = tuple(jump for jump in JUMPS if jump.target not in (names.FIREWALL.name, names.PROXY_FIREWALL.name))

V1_23 = Generation(
    jumps=(*_OF_KUBELET, *_OWN),
    kept=_kept_chains,
    shared=_shared_chains,
    head=_fixed_rules,
    port=_render_port,
    tail=_node_port_jumps,
    knows_ip_mode=False,
)
"""kube-proxy 1.23 and its kubelet."""

_SPLIT = (1, 24)
"""The version in which KUBE-EXT- and KUBE-SVL- replaced KUBE-XLB-."""


def generation_of(version: tuple[int, ...]) -> Generation:
    """The generation of that version's rules, or of the nearest one."""
    return V1_23 if version < _SPLIT else CURRENT
