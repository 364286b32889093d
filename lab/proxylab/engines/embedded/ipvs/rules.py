"""The rules of mode ipvs, which mark packets for masquerading and guard the addresses of Services.

They match sets, and IPVS translates behind them, in the hook for packets to the node itself. Rules about an empty set
are left out, as in kube-proxy. Names, comments and order are those of pkg/proxy/ipvs/proxier.go.
"""

from collections.abc import Iterator
from typing import Final

from proxylab.addresses import Family, Protocol
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.fixed import mark_for_masquerading, postrouting
from proxylab.engines.embedded.iptables.matches import TO_LOCAL, comment, local_detector, mark
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.rules import Rule, Ruleset
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.ipvs.tables import Tables
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.settings import LOOPBACK, ProxySettings

_NODE_PORT: Final = Chain(Table.NAT, "KUBE-NODE-PORT")
_LOAD_BALANCER: Final = Chain(Table.NAT, "KUBE-LOAD-BALANCER")
_HEALTH_CHECKS: Final = Chain(Table.FILTER, "KUBE-NODE-PORT")
_SOURCE_RANGES: Final = Chain(Table.FILTER, "KUBE-SOURCE-RANGES-FIREWALL")
_ACCESS: Final = Chain(Table.FILTER, "KUBE-IPVS-FILTER")
_OUT: Final = Chain(Table.FILTER, "KUBE-IPVS-OUT-FILTER")

CHAINS: Final = (
    names.SERVICES,
    names.POSTROUTING,
    _NODE_PORT,
    _LOAD_BALANCER,
    names.MARK_MASQ,
    names.FORWARD,
    _HEALTH_CHECKS,
    names.PROXY_FIREWALL,
    _SOURCE_RANGES,
    _ACCESS,
    _OUT,
)

# Each goes to the top of its chain, so the later ones come first.
_JUMPS: Final = tuple(
    Rule(source, (comment(remark),), target.name)
    for source, target, remark in (
        (names.NAT_OUTPUT, names.SERVICES, "kubernetes service portals"),
        (names.NAT_PREROUTING, names.SERVICES, "kubernetes service portals"),
        (names.NAT_POSTROUTING, names.POSTROUTING, "kubernetes postrouting rules"),
        (names.FILTER_FORWARD, names.FORWARD, "kubernetes forwarding rules"),
        (names.FILTER_INPUT, _HEALTH_CHECKS, "kubernetes health check rules"),
        (names.FILTER_INPUT, names.PROXY_FIREWALL, "kube-proxy firewall rules"),
        (names.FILTER_FORWARD, names.PROXY_FIREWALL, "kube-proxy firewall rules"),
        (names.FILTER_INPUT, _ACCESS, "kubernetes ipvs access filter"),
        (names.FILTER_OUTPUT, _OUT, "kubernetes ipvs access filter"),
    )
)

_BOTH: Final = "dst,dst"
_WITH_SOURCE: Final = "dst,dst,src"

# Of a set, the chain with the rule, what the packets must be besides, the fields that match, and the target.
_BY_SET: Final = (
    (NodeSet.LOOP_BACK, names.POSTROUTING, None, _WITH_SOURCE, "MASQUERADE"),
    (NodeSet.LOAD_BALANCER, names.SERVICES, None, _BOTH, _LOAD_BALANCER.name),
    (NodeSet.LOAD_BALANCER_LOCAL, _LOAD_BALANCER, None, _BOTH, "RETURN"),
    (NodeSet.NODE_PORT_LOCAL_TCP, _NODE_PORT, Protocol.TCP, "dst", "RETURN"),
    (NodeSet.NODE_PORT_TCP, _NODE_PORT, Protocol.TCP, "dst", names.MARK_MASQ.name),
    (NodeSet.NODE_PORT_LOCAL_UDP, _NODE_PORT, Protocol.UDP, "dst", "RETURN"),
    (NodeSet.NODE_PORT_UDP, _NODE_PORT, Protocol.UDP, "dst", names.MARK_MASQ.name),
    (NodeSet.NODE_PORT_LOCAL_SCTP, _NODE_PORT, Protocol.SCTP, _BOTH, "RETURN"),
    (NodeSet.NODE_PORT_SCTP, _NODE_PORT, Protocol.SCTP, _BOTH, names.MARK_MASQ.name),
    (NodeSet.LOAD_BALANCER_FW, names.PROXY_FIREWALL, None, _BOTH, _SOURCE_RANGES.name),
    (NodeSet.LOAD_BALANCER_SOURCE_CIDR, _SOURCE_RANGES, None, _WITH_SOURCE, "RETURN"),
    (NodeSet.LOAD_BALANCER_SOURCE_IP, _SOURCE_RANGES, None, _WITH_SOURCE, "RETURN"),
)


def make_rules(tables: Tables, node: NodeFacts, settings: ProxySettings, family: Family) -> Ruleset:
    """The rules beside these tables."""
    return Ruleset(
        family=family,
        jumps=_JUMPS,
        kept=(),
        shared=CHAINS,
        head=tuple(_rules(tables, node, settings, family)),
        ports=(),
        tail=(),
    )


def _rules(tables: Tables, node: NodeFacts, settings: ProxySettings, family: Family) -> Iterator[Rule]:
    loopback = LOOPBACK if family is Family.IPV4 else "::1/128"
    yield Rule(names.SERVICES, (f"-s {loopback}",), "RETURN")
    for each, chain, protocol, fields, target in _BY_SET:
        if each in tables.members:
            of = "" if protocol is None else f"-p {protocol.lower()}"
            yield Rule(chain, (of, each.remark, each.match(family, fields)), target)
    yield from _masquerading(tables, node, settings, family)
    yield Rule(names.SERVICES, (TO_LOCAL,), _NODE_PORT.name)
    yield Rule(_LOAD_BALANCER, (), names.MARK_MASQ.name)
    yield Rule(_SOURCE_RANGES, (), "DROP")
    for address, port, protocol in tables.closed:
        to = f"--vaddr {address} --vproto {protocol.lower()} --vport {port}"
        yield Rule(_OUT, (f"-s {address} -m ipvs {to}",), "DROP")
    for each in (NodeSet.CLUSTER_IP, NodeSet.LOAD_BALANCER):
        if each in tables.members:
            yield Rule(names.SERVICES, (each.match(family, _BOTH),), "ACCEPT")
    yield from _forwarding(settings)
    yield from _guards(family)
    yield from postrouting(settings)
    yield from mark_for_masquerading(settings)


def _masquerading(tables: Tables, node: NodeFacts, settings: ProxySettings, family: Family) -> Iterator[Rule]:
    """Which packets to cluster IPs and external IPs get the mark."""
    if NodeSet.CLUSTER_IP in tables.members:
        detector = local_detector(settings.detect_local, family, node)
        # Without a detector: the node owns all cluster IPs, and takes one as the source of its packets to another.
        fields = _BOTH if settings.masquerade_all or detector is not None else "src,dst"
        foreign = "" if settings.masquerade_all or detector is None else detector.if_not_local
        match = NodeSet.CLUSTER_IP.match(family, fields)
        yield Rule(names.SERVICES, (NodeSet.CLUSTER_IP.remark, match, foreign), names.MARK_MASQ.name)
    for each in (NodeSet.EXTERNAL_IP, NodeSet.EXTERNAL_IP_LOCAL):
        if each not in tables.members:
            continue
        matches = (each.remark, each.match(family, _BOTH))
        if each is NodeSet.EXTERNAL_IP:
            yield Rule(names.SERVICES, matches, names.MARK_MASQ.name)
        from_outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL"
        yield Rule(names.SERVICES, (*matches, from_outside), "ACCEPT")
        yield Rule(names.SERVICES, (*matches, TO_LOCAL), "ACCEPT")


def _forwarding(settings: ProxySettings) -> Iterator[Rule]:
    """KUBE-FORWARD, and KUBE-NODE-PORT for health checks: they let packets through closed policies."""
    marked = f"-m mark --mark {mark(settings.masquerade_mark)}"
    yield Rule(names.FORWARD, (comment("kubernetes forwarding rules"), marked), "ACCEPT")
    known = "-m conntrack --ctstate RELATED,ESTABLISHED"
    yield Rule(names.FORWARD, (comment("kubernetes forwarding conntrack rule"), known), "ACCEPT")


def _guards(family: Family) -> Iterator[Rule]:
    """KUBE-IPVS-FILTER: programs of the node listen on all its addresses, and must not on those of Services."""
    checks = NodeSet.HEALTH_CHECK_NODE_PORT
    yield Rule(_HEALTH_CHECKS, (checks.remark, checks.match(family, "dst")), "ACCEPT")
    served = (NodeSet.LOAD_BALANCER, NodeSet.CLUSTER_IP, NodeSet.EXTERNAL_IP, NodeSet.EXTERNAL_IP_LOCAL)
    for each in served:
        yield Rule(_ACCESS, (each.match(family, _BOTH),), "RETURN")
    yield Rule(_ACCESS, (checks.match(family, "dst"),), "RETURN")
    new = f"-m conntrack --ctstate NEW {NodeSet.IPVS_IPS.match(family, 'dst')}"
    yield Rule(_ACCESS, (new,), "REJECT")
