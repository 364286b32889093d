"""The texts of mode ipvs: rules as iptables-save prints them, then the other tables as their own tools save them.

Each of the other tables begins with a comment that names its tool.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.iptables import texts as iptables
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.ipvs.rules import make_rules
from proxylab.engines.embedded.ipvs.tables import DUMMY, plan_tables
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.programmed import Entry, Programmed, Way
from proxylab.evidence.ipvs import IpSet, VirtualServer
from proxylab.rules import ipvs
from proxylab.rules.ipset import read_sets
from proxylab.rules.ipvs import PROTOCOLS, end_of
from proxylab.rules.rule import Match, Rule

_SETS: Final = "# ipset save"
_SERVERS: Final = "# ipvsadm --save --numeric"
_BOUND: Final = f"# ip address show dev {DUMMY}"


def settings(configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> ProxySettings:
    """The settings of a proxy in this mode, which serves no node port on loopback addresses."""
    return replace(ProxySettings.of(configuration, pod_networks), localhost_node_ports=False)


def assume(
    settings: ProxySettings, _sysctls: Mapping[str, str], _version: tuple[int, ...]
) -> tuple[ProxySettings, str]:
    """The same settings, and a line about node ports."""
    return settings, "the node has the addresses of its Node object; in a lab its pod network's serve node ports, too"


def load(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, _version: tuple[int, ...]
) -> str:
    """What the embedded engine would load into an empty node: rules for iptables-restore(8), and the other tables."""
    tables = plan_tables(PortTracker(family, node.name).update(cluster), node, settings, family)
    rules = restore(make_rules(tables, node, settings, family), KernelState()).text
    return rules + print_tables(tables.sets(family), tables.servers.values(), tables.bound)


def print_tables(sets: Iterable[IpSet], servers: Iterable[VirtualServer], bound: Iterable[IPAddress]) -> str:
    """Sets, virtual servers and the addresses of the dummy device, each in order."""
    lines = [_SETS]
    for each in sorted(sets, key=lambda one: one.name):
        lines += each.lines()
    lines.append(_SERVERS)
    for server in sorted(servers, key=lambda one: (one.protocol, int(one.address), one.port)):
        lines += server.lines()
    lines += [_BOUND, *(f"inet{'6' * (each.version == 6)} {each}" for each in sorted(bound, key=int))]
    return "\n".join([*lines, ""])


def by_family(dump: str, families: Sequence[Family]) -> dict[Family, str]:
    """The part of each family in a dump; empty for a family without rules."""
    return iptables.by_family(dump, families)


def differences(ours: str, theirs: str) -> list[str]:
    """A line for each rule, member, virtual server, destination or address that only one of two dumps has."""
    found = iptables.differences(_rules(ours), _rules(theirs))
    mine, other = _other_tables(ours), _other_tables(theirs)
    return [
        *found,
        *(f"- {line}" for line in mine if line not in other),
        *(f"+ {line}" for line in other if line not in mine),
    ]


def holds(dump: str, present: bool) -> bool:
    """Whether the mark for load balancers is there, which every version writes, and in no other mode."""
    return (" -A KUBE-LOAD-BALANCER " in dump.replace("\n", " ")) is present


def without(dump: str, service: str, addresses: Collection[str]) -> str:
    """A dump without the lines that name the addresses of a Service."""
    del service
    return "".join(line for line in dump.splitlines(keepends=True) if not {*_hosts(line)}.intersection(addresses))


def _hosts(line: str) -> Iterator[str]:
    """What in a line may be an address."""
    for word in line.replace(",", " ").split():
        host = word.partition("/")[0]
        yield from (host, end_of(host)[0])


def read(text: str) -> Programmed:
    """The rules, virtual servers and destinations of one family; one of weight 0 takes no new connection.

    IPVS sees no packet to a cluster IP that the dummy device does not have.
    """
    rules, tables = iptables.read(_rules(text)), _other_tables(text)
    sets = read_sets("\n".join(tables)).values()
    node_ports = {end_of(each.fields[-1])[1] for one in sets if "-NODE-PORT-" in one.name for each in one.members}
    cluster_ips = {each.fields[0] for one in sets if one.name.endswith("-CLUSTER-IP") for each in one.members}
    bound = {line.split()[1] for line in tables if line.startswith("inet")}
    entries, ways = list[Entry](), dict[str, tuple[Way, ...]]()
    for service, destinations in _servers(tables).items():
        address, port = end_of(service.value)
        if address in cluster_ips - bound:
            continue
        server = ipvs.identity(destinations[0])
        weights = {each.after("-r"): int(each.after("-w")) for rule in destinations[1:] for each in rule.actions}
        total = sum(weights.values())
        ways[server] = tuple(
            Way(by=server, chance=weight / total, to=_end(to)) for to, weight in weights.items() if weight
        )
        entries.append(
            Entry(
                address=None if address not in bound and port in node_ports else ip_address(address),
                protocol=Protocol(PROTOCOLS[service.name].upper()),
                port=int(port),
                leads_to=server if total else "",
                refused="" if total else "REJECT",
            )
        )
    return replace(
        rules,
        reaches_addresses=True,
        reaches_node_ports=True,
        entries=tuple(entries),
        ways=ways,
        in_turn=False,
        falls_back=True,
    )


def _servers(lines: Iterable[str]) -> dict[Match, list[Rule]]:
    """The rules of each virtual server, by what packets match: itself, then its destinations."""
    servers: dict[Match, list[Rule]] = {}
    for rule in filter(None, map(ipvs.read_rule, lines)):
        servers.setdefault(next(rule.matches), []).append(rule)
    return servers


def _end(text: str) -> tuple[IPAddress, int]:
    host, port = end_of(text)
    return ip_address(host), int(port)


def _rules(dump: str) -> str:
    """A dump without the tables behind the rules."""
    return "".join(line for line, is_rule in _told_apart(dump) if is_rule)


def _other_tables(dump: str) -> dict[str, None]:
    """The lines of sets, virtual servers and addresses, each once and in order."""
    lines = (line.rstrip("\n") for line, is_rule in _told_apart(dump) if not is_rule)
    return dict.fromkeys(line for line in lines if not line.startswith("#"))


def _told_apart(dump: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to the rules. Those of the next family begin with table mangle."""
    is_rule = True
    for line in dump.splitlines(keepends=True):
        is_rule = (is_rule or line.startswith(("*mangle", ":"))) and line.rstrip("\n") != _SETS
        yield line, is_rule
