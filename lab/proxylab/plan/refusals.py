"""The checks of a scenario before its network is drawn: words, names and references.

``addresses`` reports networks that run out of addresses.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from proxylab.addresses import Family, IPNetwork
from proxylab.plan.device_names import OWN_NAMESPACES, ROUTER
from proxylab.plan.sysctls import dotted
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, OUTSIDE, UPLINK
from proxylab.scenario.nodes import Node
from proxylab.scenario.words import Position

__all__ = ["refusals", "written_sysctls"]

_WORDS: Final = {
    "podNetwork": ("ptp", "ptp-unnumbered", "bridge"),
    "hairpin": ("hairpin-veth", "promiscuous-bridge", "none"),
    "interNode": ("host-gw", "vxlan"),
}


def refusals(scenario: Scenario) -> list[str]:
    """A line for every mistake that makes the network impossible."""
    return [
        *_network_problems(scenario),
        *_name_problems(scenario),
        *_sysctl_problems(scenario),
        *(problem for node in scenario.nodes for problem in _node_problems(scenario, node)),
        *_pod_problems(scenario),
        *_address_problems(scenario),
    ]


def _network_problems(scenario: Scenario) -> Iterator[str]:
    if not scenario.nodes:
        yield f"{scenario.file}: spec.nodes: a lab needs at least one node"
    network = scenario.network
    if not network.families or len(set(network.families)) != len(network.families):
        yield f"{scenario.file}: spec.network.families: expected IPv4, IPv6 or both, each once"
    for key, value in (
        ("podNetwork", network.pod_network),
        ("hairpin", network.hairpin),
        ("interNode", network.inter_node),
    ):
        if value not in _WORDS[key]:
            yield f"{scenario.file}: spec.network.{key}: {value!r} is unknown; use {', '.join(_WORDS[key])}"


def _name_problems(scenario: Scenario) -> Iterator[str]:
    seen: dict[str, Position] = {}
    for name, position in _placements(scenario):
        if name in OWN_NAMESPACES:
            own = " and ".join(sorted(OWN_NAMESPACES))
            yield f"{position}: {name}: {own} are the lab's own network namespaces; choose another name"
        elif name in seen:
            yield f"{position}: {name}: {seen[name]} has this name already; nodes, pods and hosts share one name space"
        seen.setdefault(name, position)
    segments = Counter([NODES, OUTSIDE, *(segment.name for segment in scenario.network.segments)])
    for segment in scenario.network.segments:
        if segments[segment.name] > 1:
            yield f"{segment.position}: segment {segment.name}: another segment has this name; rename one of the two"


def _placements(scenario: Scenario) -> Iterator[tuple[str, Position]]:
    for node in scenario.nodes:
        yield node.name, node.position
    for group in scenario.pods:
        for name in group.pod_names:
            yield name, group.position
    for host in scenario.hosts:
        yield host.name, host.position


def written_sysctls(scenario: Scenario) -> Iterator[tuple[str, Position | str, Mapping[str, str]]]:
    """The author's sysctls: their owner, their place, and their values."""
    yield ROUTER, scenario.file, scenario.network.router_sysctls
    for node in scenario.nodes:
        yield node.name, node.position, node.sysctls
    for group in scenario.pods:
        yield from ((name, group.position, group.sysctls) for name in group.pod_names)
    for host in scenario.hosts:
        yield host.name, host.position, host.sysctls


def _sysctl_problems(scenario: Scenario) -> Iterator[str]:
    for owner, where, sysctls in written_sysctls(scenario):
        for name in map(dotted, sysctls):
            if not name.startswith("net."):
                yield f"{where}: {owner}: sysctl {name}: only those below net belong to a network namespace"


def _node_problems(scenario: Scenario, node: Node) -> Iterator[str]:
    segments = _segments(scenario)
    devices = [UPLINK, *(uplink.device for uplink in node.uplinks)]
    for uplink in node.uplinks:
        if uplink.segment not in segments:
            yield (
                f"{node.position}: {node.name}: uplink {uplink.device}: there is no segment {uplink.segment!r}; "
                f"use {', '.join(segments)}"
            )
        if devices.count(uplink.device) > 1:
            yield f"{node.position}: {node.name}: uplink {uplink.device}: the node has one already; choose another"
    for address in node.addresses:
        if address.device not in (*devices, "lo"):
            yield (
                f"{node.position}: {node.name}: address {address.interface}: there is no device {address.device!r}; "
                f"use one of {', '.join([*devices, 'lo'])}"
            )
    for route in node.routes:
        what = f"{node.position}: {node.name}: route to {route.destination}"
        if route.device not in devices:
            yield f"{what}: there is no device {route.device!r}; use one of {', '.join(devices)}"
        for word, other in (("via", route.via), ("from", route.source)):
            if other is not None and other.version != route.destination.version:
                yield f"{what}: {word} {other} is of the other IP family; use one of the same family"


def _pod_problems(scenario: Scenario) -> Iterator[str]:
    nodes = {node.name for node in scenario.nodes}
    listening = {
        (node.name, daemon.protocol.value, daemon.port): daemon.name
        for node in scenario.nodes
        for daemon in node.daemons
    }
    for group in scenario.pods:
        for name in sorted(set(group.nodes) - nodes):
            yield f"{group.position}: {group.name}: there is no node {name!r}; use {', '.join(sorted(nodes))}"
        if not group.host_network:
            continue
        if group.shared_netns:
            what = "pods on the host network share their node's namespace"
            yield f"{group.position}: {group.name}: {what}; remove sharedNetns"
        for ordinal, name in enumerate(group.pod_names):
            for port in group.ports:
                placement = (group.node_of(ordinal), port.protocol.value, port.port)
                other = listening.setdefault(placement, name)
                if other != name:
                    yield (
                        f"{group.position}: {name}: {other} listens on {port.protocol} {port.port} of {placement[0]} "
                        "already; pods on the host network share their node's ports"
                    )


def _address_problems(scenario: Scenario) -> Iterator[str]:
    segments = _segments(scenario)
    for host in scenario.hosts:
        if host.segment not in segments:
            yield f"{host.position}: {host.name}: there is no segment {host.segment!r}; use {', '.join(segments)}"
        if not host.addresses or host.chosen_addresses < 1:
            yield f"{host.position}: {host.name}: expected one address or more, found {host.addresses}"
    for routed in scenario.network.routed:
        yield from _shared_problems(scenario, f"{routed.position}: {routed.network}", (routed.network,), routed.nodes)
    for balancer in scenario.load_balancers:
        yield from _shared_problems(scenario, f"{balancer.position}: {balancer.name}", balancer.pool, balancer.nodes)


def _shared_problems(
    scenario: Scenario, what: str, networks: Iterable[IPNetwork], names: Collection[str]
) -> Iterator[str]:
    nodes = {node.name for node in scenario.nodes}
    for name in sorted(set(names) - nodes):
        yield f"{what}: there is no node {name!r}; use {', '.join(sorted(nodes))}"
    if not names:
        yield f"{what}: has no nodes; name at least one"
    for family in {Family.of(network): None for network in networks}:
        if family not in scenario.network.families:
            yield f"{what}: the lab has no {family}; add it to spec.network.families"


def _segments(scenario: Scenario) -> list[str]:
    return [NODES, OUTSIDE, *(segment.name for segment in scenario.network.segments)]
