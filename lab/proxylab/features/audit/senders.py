"""Who sends the questions of an audit: the kinds of senders, those that a lab has, and those that an audit adds.

Where a sender stands decides what a proxy must do, so there is one of each kind: on a node with an endpoint and on one
without, in a pod and on the node itself, on the node's link and behind the router.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.plan.model import Plan, Role
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, OUTSIDE
from proxylab.scenario.pods import Host, PodGroup
from proxylab.scenario.words import Position


class SenderKind(StrEnum):
    """A kind of sender, in the words of the table."""

    NEAR = "pod near"
    FAR = "pod far"
    ENDPOINT = "endpoint"
    HOST_POD = "host pod"
    NODE = "node"
    LOOPBACK = "loopback"
    OUTSIDE = "outside"
    NEIGHBOUR = "neighbour"


MEANINGS: Final = {
    SenderKind.NEAR: "a pod on the node of an endpoint",
    SenderKind.FAR: "a pod on a node without an endpoint",
    SenderKind.ENDPOINT: "an endpoint that dials its own Service",
    SenderKind.HOST_POD: "a pod in the network of its node",
    SenderKind.NODE: "a node itself",
    SenderKind.LOOPBACK: "a node that dials its own loopback address",
    SenderKind.OUTSIDE: "a machine behind the router, by way of each node",
    SenderKind.NEIGHBOUR: "a machine on the link of the nodes",
}

_ADDED: Final = "audit"


class Senders(Struct, frozen=True, kw_only=True):
    """The senders that a lab has. Pods are those with a network of their own.

    Attributes:
        pods: by the name of their node.
        host_pods: by the name of their node.
        nodes: in order.
        further: addresses of a node that its Node object does not have, by its name.
        outside: hosts behind the router.
        neighbours: hosts on the link of the nodes.
    """

    pods: dict[str, tuple[str, ...]]
    host_pods: dict[str, tuple[str, ...]]
    nodes: tuple[str, ...]
    further: Mapping[str, tuple[IPAddress, ...]]
    outside: tuple[str, ...]
    neighbours: tuple[str, ...]

    def pod_on(self, nodes: Collection[str], besides: Collection[str]) -> str | None:
        """A pod on one of the nodes that is none of ``besides``."""
        on = (pod for node in self.nodes if node in nodes for pod in self.pods.get(node, ()))
        return next((pod for pod in on if pod not in besides), None)

    @property
    def missing(self) -> tuple[SenderKind, ...]:
        """The kinds of which the lab has none."""
        there = {
            SenderKind.NEAR: self.pods,
            SenderKind.HOST_POD: self.host_pods,
            SenderKind.OUTSIDE: self.outside,
            SenderKind.NEIGHBOUR: self.neighbours,
        }
        return tuple(kind for kind, found in there.items() if not found)


def senders_of(scenario: Scenario, plan: Plan) -> Senders:
    """The senders of a laid out scenario; those that an audit has added come first."""
    nodes = tuple(each.name for each in scenario.nodes)
    alive = {
        name
        for group in scenario.pods
        if group.present and not group.terminating and group.program is None
        for name in group.pod_names
    }
    pods: dict[str, list[str]] = {}
    host_pods: dict[str, list[str]] = {}
    for pod in sorted(plan.pods, key=lambda each: not each.name.startswith(_ADDED)):
        if pod.name in alive:
            (host_pods if pod.namespace in nodes else pods).setdefault(pod.node, []).append(pod.name)
    segments = {each.name: each.segment for each in scenario.hosts}
    hosts = sorted(
        (each.name for each in plan.namespaces if each.role is Role.HOST and each.name in segments),
        key=lambda each: not each.startswith(_ADDED),
    )
    return Senders(
        pods={node: tuple(found) for node, found in pods.items()},
        host_pods={node: tuple(found) for node, found in host_pods.items()},
        nodes=nodes,
        further={each.name: tuple(one.interface.ip for one in each.addresses) for each in scenario.nodes},
        outside=tuple(each for each in hosts if segments[each] == OUTSIDE),
        neighbours=tuple(each for each in hosts if segments[each] == NODES),
    )


def with_senders(scenario: Scenario) -> Scenario:
    """The scenario with a pod and a pod in the host's network on every node, a host outside and a neighbour."""
    taken = {*(name for group in scenario.pods for name in group.pod_names), *(each.name for each in scenario.hosts)}
    taken |= {each.name for each in scenario.nodes}
    names = _Names(taken)
    at = Position(scenario.file, 1, 1)
    pods = (
        PodGroup(name=names.new(f"{_ADDED}{of}-{node.name}"), nodes=(node.name,), host_network=bool(of), position=at)
        for node in scenario.nodes
        for of in ("", "-host")
    )
    hosts = (
        Host(name=names.new(f"{_ADDED}-outside"), segment=OUTSIDE, position=at),
        Host(name=names.new(f"{_ADDED}-neighbour"), segment=NODES, position=at),
    )
    return replace(scenario, pods=(*scenario.pods, *pods), hosts=(*scenario.hosts, *hosts))


class _Names:
    """Names that nothing in the lab has."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def new(self, wanted: str) -> str:
        found = next(each for each in _numbered(wanted) if each not in self._taken)
        self._taken.add(found)
        return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1
