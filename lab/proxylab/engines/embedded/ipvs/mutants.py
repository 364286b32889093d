"""The classes of what mode ipvs programs, and their mutants: members, virtual servers, destinations, addresses, rules.

Rules are those of mode iptables. The other tables are classed as their tools print them: members by their set,
virtual servers and destinations by the set that has their frontend, since the frontends of a kind are planned alike.
IPVS takes only packets to an address of the node itself, so an address of kube-ipvs0 is a class, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.mutants import MUTANT_LINES as OF_RULES
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.ipvs.tables import Tables
from proxylab.engines.embedded.ipvs.texts import print_tables
from proxylab.engines.embedded.mutation import ABSENT, Equivalent, MutantLines, Mutation
from proxylab.evidence.ipvs import VIRTUAL_SERVERS, IpvsDestination, VirtualServer
from proxylab.evidence.words import endpoint
from proxylab.rules import ipvs
from proxylab.rules.ipset import read_member
from proxylab.rules.ipvs import DESTINATION, PROTOCOLS, end_of
from proxylab.rules.rule import Action, Rule

_IN_IPV4: Final = {each.name_in(family): each.name_in(Family.IPV4) for each in NodeSet for family in Family}
"""The names of sets, each with the name of IPv4's; the kernel's limit cuts some of IPv6."""
_OF_FRONTENDS: Final = tuple(
    each.name_in(Family.IPV4)
    for each in (NodeSet.CLUSTER_IP, NodeSet.EXTERNAL_IP, NodeSet.EXTERNAL_IP_LOCAL, NodeSet.LOAD_BALANCER)
)
_OTHER_SCHEDULER: Final = "sh"
"""It sends a client to one destination, which the others do only where persistence asks for it."""


def _classes(text: str) -> list[str]:
    lines = text.split("\n")
    frontends = {
        ",".join(member.fields): _IN_IPV4[member.of]
        for member in filter(None, map(read_member, lines))
        if _IN_IPV4[member.of] in _OF_FRONTENDS
    }
    of_tables = [_class(line, frontends) for line in lines]
    for name in _IN_IPV4:
        text = text.replace(f" {name} ", f" {_IN_IPV4[name]} ")
    return [mine or rule for mine, rule in zip(of_tables, OF_RULES.classes(text), strict=True)]


def _class(line: str, frontends: Mapping[str, str]) -> str:
    if (member := read_member(line)) is not None:
        return f"ipset {_IN_IPV4[member.of]}"
    rule = ipvs.read_rule(line)
    if rule is None or rule.action is None:
        return "kube-ipvs0 inet ADDRESS" if line.startswith("inet") else ""
    service = next(rule.matches)
    host, port = end_of(service.value)
    kind = frontends.get(f"{host},{PROTOCOLS[service.name]}:{port}", "KUBE-NODE-PORT")
    if rule.target == DESTINATION:
        return f"ipvs {kind} -a ENDPOINT -r ENDPOINT"
    action = rule.action.having("-p", "SECONDS") if rule.value("-p") else rule.action
    return " ".join(["ipvs", kind, "-A ENDPOINT", *action.words])


def _mutants(rule_class: str, line: str) -> dict[str, Sequence[str]]:
    if rule_class.startswith(("ipset ", "kube-ipvs0 ")):
        return {ABSENT: ()}
    rule = ipvs.read_rule(line)
    if rule is None or rule.action is None:
        return dict(OF_RULES.mutants(rule_class, line))
    changes = _destinations(rule.action) if rule.target == DESTINATION else _servers(rule.action)
    service = next(rule.matches)
    others = {change: replace(rule, parts=(service, other)) for change, other in changes}
    return {ABSENT: (), **{change: (ipvs.print_rule(other),) for change, other in others.items()}}


def _servers(server: Action) -> Iterator[tuple[str, Action]]:
    if server.after("-s") == "rr":
        yield f"-s {_OTHER_SCHEDULER}", server.having("-s", _OTHER_SCHEDULER)
    if period := server.after("-p"):
        yield "without -p", server.having("-p")
        yield "half the -p", server.having("-p", str(max(1, int(period) // 2)))


def _destinations(destination: Action) -> Iterator[tuple[str, Action]]:
    host, port = end_of(destination.after("-r"))
    address = ip_address(host)
    yield "-w 0", destination.having("-w", "0")
    yield "-r of another address", destination.having("-r", endpoint(address + 1, int(port)))
    yield "-r of another port", destination.having("-r", endpoint(address, int(port) % 65535 + 1))


def mutated_tables(tables: Tables, mutation: Mutation, family: Family) -> Tables:
    """The tables with the mutation in each entry of its class. Rules are mutated where they are loaded."""
    text = print_tables(tables.sets(family), tables.servers.values(), tables.bound)
    changed = {
        line: next(iter(_mutants(rule, line).get(mutation.change, (line,))), "")
        for line, rule in zip(text.split("\n"), _classes(text), strict=True)
        if rule == mutation.rule
    }
    return replace(
        tables,
        servers={each.key: each for each in _changed_servers(tables.servers.values(), changed)},
        members={
            one: frozenset(each for each in members if f"add {one.name_in(family)} {each}" not in changed)
            for one, members in tables.members.items()
        },
        bound=frozenset(each for each in tables.bound if f"inet{'6' * (each.version == 6)} {each}" not in changed),
    )


def _changed_servers(servers: Iterable[VirtualServer], changed: Mapping[str, str]) -> Iterator[VirtualServer]:
    for each in servers:
        if (rule := _changed(each.rule, changed)) is not None:
            destinations = tuple(_changed_destinations(each, changed))
            scheduler, period = rule.value("-s"), rule.value("-p")
            yield replace(each, scheduler=scheduler, persistence=int(period or 0), destinations=destinations)


def _changed_destinations(server: VirtualServer, changed: Mapping[str, str]) -> Iterator[IpvsDestination]:
    for each in server.destinations:
        if (rule := _changed(server.rule_of(each), changed)) is not None:
            host, port = end_of(rule.value("-r"))
            yield replace(each, address=ip_address(host), port=int(port), weight=int(rule.value("-w")))


def _changed(rule: Rule, changed: Mapping[str, str]) -> Rule | None:
    line = ipvs.print_rule(rule)
    return ipvs.read_rule(changed.get(line, line))


_PACKETS: Final = (
    ("ipset KUBE-LOOP-BACK", "a pod that dials a Service and reaches itself"),
    ("ipset KUBE-CLUSTER-IP", "a sender outside the pod networks that dials the cluster IP"),
    ("ipset KUBE-EXTERNAL-IP", "a sender that dials the external IP"),
    ("ipset KUBE-LOAD-BALANCER-FW", "a sender outside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("ipset KUBE-LOAD-BALANCER-SOURCE", "a sender inside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("ipset KUBE-LOAD-BALANCER", "a sender that dials the load-balancer IP"),
    ("ipset KUBE-NODE-PORT", "a sender that dials a NodePort"),
    ("ipset KUBE-HEALTH-CHECK", "the health check of a load balancer while the policy of INPUT is DROP"),
    ("ipset KUBE-IPVS-IPS", "a sender that dials the address of a Service at the port of a daemon of the node"),
    ("ipvs KUBE-CLUSTER-IP", "a sender that dials the cluster IP"),
    ("ipvs KUBE-EXTERNAL-IP", "a sender that dials the external IP"),
    ("ipvs KUBE-LOAD-BALANCER", "a sender that dials the load-balancer IP"),
    ("ipvs KUBE-NODE-PORT", "a sender that dials a NodePort"),
    ("kube-ipvs0", "a sender that dials a frontend on an address that the node does not have itself"),
    ("filter KUBE-IPVS-FILTER", "a sender that dials the address of a Service at the port of a daemon of the node"),
    ("filter KUBE-IPVS-OUT-FILTER", "a node that dials a load-balancer IP whose source ranges leave it out"),
    ("filter KUBE-SOURCE-RANGES", "a sender outside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("filter KUBE-NODE-PORT", "the health check of a load balancer while the policy of INPUT is DROP"),
    ("nat KUBE-LOAD-BALANCER", "a sender that dials the load-balancer IP"),
    ("nat KUBE-NODE-PORT", "a sender that dials a NodePort"),
    ("nat KUBE-SERVICES --dst-type LOCAL -j KUBE-NODE-PORT", "a sender that dials a NodePort"),
    ("nat KUBE-SERVICES -s LOOPBACK", "a node that dials a Service from a loopback address"),
    ("nat KUBE-SERVICES", "a sender that dials an address of a Service"),
)

_DIFFERENCES: Final = (
    (ABSENT, "expect what the entry does to it (delivered, rejected, its source or `at`)"),
    ("-w 0", "expect a new connection to reach the endpoint"),
    ("-r of", "expect the pod and the port"),
    ("-s ", "expect `spread: even` over the flows of one client"),
    ("-p", "keep to one endpoint under ClientIP affinity, until its time-out has passed"),
)


def _suggestion(rule_class: str, change: str) -> str:
    who = next((text for beginning, text in _PACKETS if rule_class.startswith(beginning)), "")
    if not who:
        return OF_RULES.suggestion(rule_class, change)
    found = (text for part, text in _DIFFERENCES if change == part or part in change)
    return f"{who}: {next(found, 'expect the other outcome of a packet that differs in this match alone')}"


def _met(table: str, chain: str, text: str) -> str:
    """The entries of IPVS that a packet met belong to a kind that one line does not show."""
    return "ipvs " if table == VIRTUAL_SERVERS else OF_RULES.met(table, chain, text)


MUTANT_LINES: Final = MutantLines(_classes, _mutants, _suggestion, _met)


_EXTERNAL: Final = (
    "--match-set KUBE-EXTERNAL-IP dst,dst -j ACCEPT "
    "# Kubernetes service external ip + port for masquerade and filter purpose"
)
_EXTERNAL_LOCAL: Final = (
    "--match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j ACCEPT "
    "# Kubernetes service external ip + port with externalTrafficPolicy=local"
)
_FROM_OUTSIDE: Final = tuple(
    f"nat KUBE-SERVICES ! --physdev-is-in ! --src-type LOCAL {each}" for each in (_EXTERNAL, _EXTERNAL_LOCAL)
)
_TO_NODE: Final = tuple(f"nat KUBE-SERVICES --dst-type LOCAL {each}" for each in (_EXTERNAL, _EXTERNAL_LOCAL))
_NODE_PORT_LOCAL: Final = {
    "TCP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN "
    "# Kubernetes nodeport TCP port with externalTrafficPolicy=local",
    "UDP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-UDP dst -j RETURN "
    "# Kubernetes nodeport UDP port with externalTrafficPolicy=local",
    "SCTP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN "
    "# Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
}
_NODE_PORT_SCTP: Final = (
    "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ "
    "# Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"
)
_PERSISTENT: Final = tuple(
    f"ipvs {each} -A ENDPOINT -s rr -p SECONDS"
    for each in ("KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT")
)
_ADMITTED: Final = tuple(
    f"filter KUBE-SOURCE-RANGES-FIREWALL --match-set {name} dst,dst,src -j RETURN # {remark}"
    for name, remark in (
        (
            "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
        ),
        (
            "KUBE-LOAD-BALANCER-SOURCE-IP",
            "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
        ),
    )
)
_FROM_ITSELF: Final = (
    "IPVS takes what a node sends in OUTPUT, and the kernel drops what comes in from an address of the node itself"
)
_SERVED: Final = tuple(
    f"filter KUBE-IPVS-FILTER --match-set {each} dst,dst -j RETURN"
    for each in ("KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL")
)

EQUIVALENTS: Final = (
    Equivalent(
        ("filter FORWARD -j KUBE-PROXY-FIREWALL # kube-proxy firewall rules",),
        (ABSENT,),
        "the node has every load-balancer IP, so that it forwards no packet to one",
    ),
    Equivalent(
        ("filter KUBE-FORWARD --mark MARK/MARK -j ACCEPT # kubernetes forwarding rules",),
        (ABSENT, "-j DROP", "-j RETURN"),
        "the node has every address whose packets get the mark: IPVS takes these in INPUT and sends them by OUTPUT",
    ),
    Equivalent(
        ("filter KUBE-IPVS-FILTER --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",),
        ("-j ACCEPT",),
        "KUBE-NODE-PORT, which comes later in INPUT, accepts the same set",
    ),
    Equivalent(
        (*_SERVED, *_ADMITTED),
        ("-j ACCEPT",),
        "behind it stand only rules for other packets, and those of other programs, on whose work no verdict rests",
    ),
    Equivalent(
        (_ADMITTED[1], "ipset KUBE-LOAD-BALANCER-SOURCE-IP"),
        (ABSENT,),
        _FROM_ITSELF,
    ),
    Equivalent((_ADMITTED[1],), ("-j DROP",), _FROM_ITSELF),
    Equivalent(
        (*_NODE_PORT_LOCAL.values(), "nat KUBE-SERVICES -s LOOPBACK -j RETURN"),
        ("-j ACCEPT",),
        "behind it stand only rules that accept, and those of other programs, on whose work no verdict rests",
    ),
    Equivalent(
        tuple(
            f"nat KUBE-SERVICES --match-set {each} dst,dst -j ACCEPT"
            for each in ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER")
        ),
        ("without --match-set",),
        "they are the last rules of the chain; the packets accepted besides meet only rules of other programs",
    ),
    Equivalent(
        tuple(_NODE_PORT_LOCAL.values()),
        ("-p of TCP and UDP",),
        "a number over another protocol belongs to the same Service, since no two have one number, and to its policy",
    ),
    Equivalent(
        (_NODE_PORT_SCTP,),
        ("-p of TCP and UDP",),
        "the members of the set have the protocol",
    ),
    Equivalent(
        _FROM_OUTSIDE,
        (ABSENT, "without ! --physdev-is-in", "without ! --src-type"),
        "the node has every external IP, so that the next rule accepts all packets to it",
    ),
    Equivalent(
        _TO_NODE,
        ("without --dst-type",),
        "the node has every external IP, so that each packet to it matches",
    ),
    Equivalent(
        _PERSISTENT,
        ("-s sh",),
        "persistence asks the scheduler once for each client, and a hash of its address is as good a choice as a turn",
    ),
)
"""Mutants that no packet of any scenario can tell from the rule, each with its proof."""
