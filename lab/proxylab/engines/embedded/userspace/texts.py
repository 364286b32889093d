"""The texts of mode userspace: what is loaded, and what iptables-save prints.

The kernel chooses the ports of the proxy process, and no two runs have the same. So ``load`` numbers them from
``FIRST_PORT`` up, and ``differences`` does not compare them.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPNetwork, Protocol
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.iptables import texts as iptables
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.rules import CHAINS, generation
from proxylab.engines.embedded.userspace.writer import served_ports, tracked_ports
from proxylab.engines.programmed import Entry, Programmed
from proxylab.rules.iptables import print_rule, read_rule, read_tables
from proxylab.rules.rule import Action, Match

FIRST_PORT: Final = 40001

_TO_PROCESS: Final = "KUBE-NODEPORT-NON-LOCAL"
"""The chain that lets packets to ports of the process through INPUT."""
_LEADING: Final = ("KUBE-PORTALS-CONTAINER", "KUBE-NODEPORT-CONTAINER")


def settings(configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> ProxySettings:
    """The settings of a proxy in this mode.

    It needs no route to loopback addresses, and writes no sysctl for it. It deletes the UDP flows of deleted Services
    alone (``unmergeService`` in pkg/proxy/userspace/proxier.go).
    """
    of_mode = ProxySettings.of(configuration, pod_networks)
    return replace(of_mode, localhost_node_ports=False, forget_stale_udp="deleted")


def assume(
    settings: ProxySettings, _sysctls: Mapping[str, str], _version: tuple[int, ...]
) -> tuple[ProxySettings, str]:
    """The same settings, and a line about the ports."""
    return settings, f"the proxy process listens on ports from {FIRST_PORT} up; in a lab its kernel chooses them"


def load(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, _version: tuple[int, ...]
) -> str:
    """What the embedded engine would load into an empty node, for iptables-restore(8)."""
    keys = served_ports(tracked_ports(PortTracker(family, node.name), cluster))
    ports = {key: number for number, key in enumerate(keys, FIRST_PORT)}
    ruleset = render(cluster, node, settings, family, generation(ports, settings.node_address))
    return restore(ruleset, KernelState()).text


def read(text: str) -> Programmed:
    """The rules that lead packets from elsewhere to the process, each to a port. The process chooses the endpoint."""
    return Programmed(
        hooked=frozenset(),
        reaches_addresses=False,
        reaches_node_ports=False,
        entries=tuple(_entries(text)),
        leads={},
        local=frozenset(),
        ways={},
        in_turn=True,
        masquerades=False,
    )


def _entries(text: str) -> Iterator[Entry]:
    for line in (line for table in read_tables(text) for line in table.rules_in(_LEADING)):
        rule = read_rule(line.text)
        if rule is None:
            continue
        to = rule.value("--to-ports") or rule.value("--to-destination").rpartition(":")[2]
        protocol, port, address = (rule.value(option) for option in ("-p", "--dport", "-d"))
        if to and protocol and port:
            yield Entry(
                address=ip_network(address).network_address if address else None,
                protocol=Protocol(protocol.upper()),
                port=int(port),
                leads_to=to,
            )


def differences(ours: str, theirs: str) -> list[str]:
    """A line for each rule that only one of two dumps has, whatever the ports of the processes.

    Other chains of Kubernetes in these tables are the kubelet's.
    """
    found = iptables.differences(_without_ports(ours), _without_ports(theirs))
    return [line for line in found if any(chain.name in line for chain in CHAINS)]


def _without_ports(dump: str) -> str:
    return "\n".join(map(_without_port, dump.split("\n")))


def _without_port(line: str) -> str:
    """A line whose rule leads to a port of the process, with another port."""
    counter, verb, text = line.partition("-A ")
    rule = read_rule(verb + text)
    if rule is None:
        return line
    parts = [_with_port_1(part, rule.chain) for part in rule.parts]
    return counter + print_rule(replace(rule, parts=tuple(parts)))


def _with_port_1(part: Match | Action, chain: str) -> Match | Action:
    if isinstance(part, Match):
        return replace(part, values=("1",)) if chain == _TO_PROCESS and part.name == "--dport" else part
    if part.after("--to-ports"):
        return part.having("--to-ports", "1")
    host, _, _ = part.after("--to-destination").rpartition(":")
    return part.having("--to-destination", f"{host}:1") if host else part


def holds(dump: str, present: bool) -> bool:
    """Whether some rule leads a frontend to the proxy process."""
    return any(table.rules_in([_LEADING[0]]) for table in read_tables(dump)) is present
