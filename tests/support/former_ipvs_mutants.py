"""The classes of what mode ipvs programs, and their mutants: members, virtual servers, destinations, addresses, rules.

Rules are those of mode iptables. The other tables are classed as their tools print them: members by their set,
virtual servers and destinations by the set that has their frontend, since the frontends of a kind are planned alike.
IPVS takes only packets to an address of the node itself, so an address of kube-ipvs0 is a class, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
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

_MEMBER: Final = re.compile(r"add (\S+) (\S+)")
_SERVER: Final = re.compile(r"-A (\S+) (\S+)( -s \S+.*)")
_DESTINATION: Final = re.compile(r"-a (\S+) (\S+) -r (\S+):(\d+) -m -w \d+")
_BOUND: Final = re.compile(r"inet6? (\S+)")
_OF_IPV6: Final = re.compile(r"\bKUBE-6-\S+")
_PROTOCOLS: Final = {"-t": "tcp", "-u": "udp", "--sctp-service": "sctp"}
_OF_FRONTENDS: Final = tuple(
    each.name_in(Family.IPV4)
    for each in (NodeSet.CLUSTER_IP, NodeSet.EXTERNAL_IP, NodeSet.EXTERNAL_IP_LOCAL, NodeSet.LOAD_BALANCER)
)
_OTHER_SCHEDULER: Final = "sh"
"""It sends a client to one destination, which the others do only where persistence asks for it."""


def _classes(text: str) -> list[str]:
    lines = text.split("\n")
    frontends = {
        member[2]: member[1]
        for member in map(_MEMBER.fullmatch, lines)
        if member and _in_ipv4(member[1]) in _OF_FRONTENDS
    }
    of_tables = map(partial(_class, frontends=frontends), lines)
    of_rules = OF_RULES.classes(_OF_IPV6.sub(lambda name: _in_ipv4(name[0]), text))
    return [mine or rule for mine, rule in zip(of_tables, of_rules, strict=True)]


def _class(line: str, frontends: "dict[str, str]") -> str:
    if member := _MEMBER.fullmatch(line):
        return f"ipset {_in_ipv4(member[1])}"
    if server := _SERVER.fullmatch(line):
        kind = _kind(server[1], server[2], frontends)
        return f"ipvs {kind} -A ENDPOINT{re.sub(r'(?<=-p )[0-9]+', 'SECONDS', server[3])}"
    if destination := _DESTINATION.fullmatch(line):
        return f"ipvs {_kind(destination[1], destination[2], frontends)} -a ENDPOINT -r ENDPOINT"
    return "kube-ipvs0 inet ADDRESS" if _BOUND.fullmatch(line) else ""


def _in_ipv4(name: str) -> str:
    """The name that the set of IPv4 has; the kernel's limit cuts some of IPv6."""
    return next(each.name_in(Family.IPV4) for each in NodeSet if name in map(each.name_in, Family))


def _kind(option: str, end: str, frontends: "dict[str, str]") -> str:
    host, _, port = end.rpartition(":")
    found = frontends.get(f"{host.strip('[]')},{_PROTOCOLS[option]}:{port}")
    return "KUBE-NODE-PORT" if found is None else _in_ipv4(found)


def _mutants(rule_class: str, line: str) -> dict[str, Sequence[str]]:
    if rule_class.startswith(("ipset ", "kube-ipvs0 ")):
        return {ABSENT: ()}
    if server := _SERVER.fullmatch(line):
        return {ABSENT: (), **{change: (other,) for change, other in _servers(line, server[3])}}
    if destination := _DESTINATION.fullmatch(line):
        return {ABSENT: (), **{change: (other,) for change, other in _destinations(line, *destination.group(3, 4))}}
    return dict(OF_RULES.mutants(rule_class, line))


def _servers(line: str, options: str) -> Iterator[tuple[str, str]]:
    if " -s rr" in options:
        yield f"-s {_OTHER_SCHEDULER}", line.replace(" -s rr", f" -s {_OTHER_SCHEDULER}")
    if period := re.search(r" -p (\d+)", options):
        yield "without -p", line.replace(period[0], "")
        yield "half the -p", line.replace(period[0], f" -p {max(1, int(period[1]) // 2)}")


def _destinations(line: str, host: str, port: str) -> Iterator[tuple[str, str]]:
    other = str(ip_address(host.strip("[]")) + 1)
    other = f"[{other}]" if host.startswith("[") else other
    yield "-w 0", re.sub(r"-w \d+", "-w 0", line)
    yield "-r of another address", line.replace(f"-r {host}:{port}", f"-r {other}:{port}")
    yield "-r of another port", line.replace(f"-r {host}:{port}", f"-r {host}:{int(port) % 65535 + 1}")


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


def _changed_servers(servers: Iterable[VirtualServer], changed: "dict[str, str]") -> Iterator[VirtualServer]:
    for each in servers:
        first, *_ = each.lines()
        line = changed.get(first, first)
        if line:
            destinations = tuple(_changed_destinations(each, changed))
            scheduler, period = _value(line, "-s"), _value(line, "-p")
            yield replace(each, scheduler=scheduler, persistence=int(period or 0), destinations=destinations)


def _changed_destinations(server: VirtualServer, changed: "dict[str, str]") -> Iterator[IpvsDestination]:
    for each in server.destinations:
        (first,) = replace(server, destinations=(each,)).lines()[1:]
        line = changed.get(first, first)
        if line:
            host, _, port = _value(line, "-r").rpartition(":")
            weight = int(_value(line, "-w"))
            yield replace(each, address=ip_address(host.strip("[]")), port=int(port), weight=weight)


def _value(line: str, option: str) -> str:
    words = line.split()
    return words[words.index(option) + 1] if option in words else ""


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
