"""Scenarios built from the types themselves, for tests of the packages that use the loader's result."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Service, ServicePort
from proxylab.scenario.expect import Expect
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import Network
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pods import Host, ListeningPort, PodGroup
from proxylab.scenario.probes import Probe, Send, ServiceTarget, Source, Target
from proxylab.scenario.words import Frontend, Outcome, Position

FILE = "case.lab.yaml"

NETWORK = Network(
    pod_cidrs=(IPv4Network("10.244.0.0/16"),),
    service_cidrs=(IPv4Network("10.96.0.0/16"),),
    node_cidrs=(IPv4Network("172.18.0.0/16"),),
    outside_cidrs=(IPv4Network("203.0.113.0/24"),),
)

IPV6: Mapping[str, Any] = {
    "families": (Family.IPV6,),
    "pod_cidrs": (IPv6Network("fd00:10:244::/56"),),
    "service_cidrs": (IPv6Network("fd00:10:96::/112"),),
    "node_cidrs": (IPv6Network("fd00:172:18::/64"),),
    "outside_cidrs": (IPv6Network("2001:db8:203:113::/64"),),
}
DUAL: Mapping[str, Any] = {key: (*getattr(NETWORK, key), *value) for key, value in IPV6.items()}

HTTP = ListeningPort(name="http", port=8080)

ECHO = Service(
    name="echo",
    selector={"app": "echo"},
    ports=(
        ServicePort(name="http", port=80, target_port="http"),
        ServicePort(name="dns-udp", protocol=Protocol.UDP, port=53, target_port=8053),
        ServicePort(name="dns-tcp", protocol=Protocol.TCP, port=53, target_port=8053),
    ),
)


def at(line: int, column: int = 1) -> Position:
    return Position(FILE, line, column)


def node(name: str, line: int = 1, **fields: Any) -> LabNode:
    return LabNode(name=name, position=at(line), **fields)


def pods(name: str, *nodes: str, replicas: int | None = None, line: int = 1, **fields: Any) -> PodGroup:
    return PodGroup(name=name, nodes=nodes, replicas=replicas, position=at(line), **fields)


def host(name: str, line: int = 1, **fields: Any) -> Host:
    return Host(name=name, position=at(line), **fields)


def probe(
    name: str, sender: str | Source, target: Target, send: Send | None = None, line: int = 1, **expect: Any
) -> Probe:
    return Probe(
        name=name,
        source=sender if isinstance(sender, Source) else Source(name=sender),
        target=target,
        send=send or Send(),
        expect=Expect(**{"outcome": Outcome.DELIVERED, "position": at(line + 1), **expect}),
        position=at(line),
    )


def frontend(port: str | int | None = "http", *, service: str = "echo", node: str | None = None) -> ServiceTarget:
    return ServiceTarget(service=service, port=port, via=Frontend.CLUSTER_IP, node=node)


def scenario(
    nodes: Sequence[LabNode] = (),
    groups: Sequence[PodGroup] = (),
    hosts: Sequence[Host] = (),
    *,
    services: Sequence[Service] = (ECHO,),
    probes: Sequence[Probe] = (),
    network: Mapping[str, Any] | None = None,
) -> Scenario:
    return Scenario(
        file=FILE,
        name="case",
        network=replace(NETWORK, **(network or {})),
        nodes=tuple(nodes),
        pods=tuple(groups),
        hosts=tuple(hosts),
        services=tuple(services),
        probes=tuple(probes),
    )


def two_nodes(*probes: Probe, network: Mapping[str, Any] | None = None) -> Scenario:
    """Two nodes, three replicas of echo and a sender on the first of them, and a host outside."""
    return scenario(
        [node("node-a"), node("node-b")],
        [
            pods("echo", "node-a", "node-b", replicas=3, labels={"app": "echo"}, ports=(HTTP,)),
            pods("sender", "node-a"),
        ],
        [host("client")],
        probes=probes,
        network=network,
    )
