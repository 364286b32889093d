"""The texts of mode ipvs: rules as iptables-save prints them, then the other tables as their own tools save them.

Each of the other tables begins with a comment that names its tool.
"""

import re
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
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.tracker import PortTracker
from proxylab.engines.programmed import Entry, Programmed, Way
from proxylab.evidence.ipvs import IpSet, VirtualServer

_SETS: Final = "# ipset save"
_SERVERS: Final = "# ipvsadm --save --numeric"
_BOUND: Final = f"# ip address show dev {DUMMY}"

_PROTOCOLS: Final = {"-t": Protocol.TCP, "-u": Protocol.UDP, "--sctp-service": Protocol.SCTP}

_TABLES: Final = re.compile(f"^{_SETS}\n(?:(?!\\*mangle|:).*\n?)*", re.MULTILINE)
"""The other tables of a family; the next family's rules begin with table mangle."""


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
    named = re.compile("|".join(rf"\b{re.escape(each)}\b" for each in addresses) or "(?!)")
    return "".join(line for line in dump.splitlines(keepends=True) if not named.search(line))


def read(text: str) -> Programmed:
    """The rules, virtual servers and destinations of one family; one of weight 0 takes no new connection.

    IPVS sees no packet to a cluster IP that the dummy device does not have.
    """
    rules, tables = iptables.read(_rules(text)), _other_tables(text)
    members = [line.split()[1:3] for line in tables if line.startswith("add ")]
    node_ports = {member.rpartition(":")[2] for name, member in members if "-NODE-PORT-" in name}
    cluster_ips = {member.partition(",")[0] for name, member in members if name.endswith("-CLUSTER-IP")}
    bound = {line.split()[1] for line in tables if line.startswith("inet")}
    entries, ways = list[Entry](), dict[str, tuple[Way, ...]]()
    for option, end, destinations in _servers(tables):
        host, _, port = end.rpartition(":")
        address = host.strip("[]")
        if address in cluster_ips - bound:
            continue
        server, total = f"{option} {end}", sum(destinations.values())
        ways[server] = tuple(
            Way(by=server, chance=weight / total, to=_end(to)) for to, weight in destinations.items() if weight
        )
        entries.append(
            Entry(
                address=None if address not in bound and port in node_ports else ip_address(address),
                protocol=_PROTOCOLS[option],
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


def _servers(lines: Iterable[str]) -> Iterator[tuple[str, str, dict[str, int]]]:
    """The option and the end that identify each virtual server, and the weights of its destinations."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for verb, *words in map(str.split, lines):
        if verb == "-A":
            found[words[0], words[1]] = {}
        elif verb == "-a":
            found[words[0], words[1]][words[words.index("-r") + 1]] = int(words[words.index("-w") + 1])
    for (option, end), destinations in found.items():
        yield option, end, destinations


def _end(text: str) -> tuple[IPAddress, int]:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")), int(port)


def _rules(dump: str) -> str:
    """A dump without the tables behind the rules: ipvsadm's lines look like rules."""
    return _TABLES.sub("", dump)


def _other_tables(dump: str) -> dict[str, None]:
    """The lines of sets, virtual servers and addresses, each once and in order."""
    lines = (line for found in _TABLES.findall(dump) for line in found.splitlines())
    return dict.fromkeys(line for line in lines if not line.startswith("#"))
