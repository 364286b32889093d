"""Chooses the path tests of a diagnosis: which pod, node or host dials which frontend, and what must follow.

A path test is one frontend dialled by one sender. ``path_tests`` and ``hairpin_tests`` choose them; frontends that a
policy closes to every sender have none.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.configuration import DetectLocalMode, ProxyConfiguration
from proxylab.cluster.objects import TrafficPolicy
from proxylab.engines.modes import MODES
from proxylab.features.diagnose.subject import Backend, DiagnosedService, FrontendAddress
from proxylab.scenario.model import Scenario
from proxylab.scenario.words import Frontend

_MOST_TESTS = 64
"""The most path tests of one diagnosis."""
_MOST_HAIRPINS = 8


class Terms(Struct, frozen=True, kw_only=True):
    """The settings of one node's proxy that decide, besides the objects, who gets in and with which source address.

    Attributes:
        detects: whether a proxy can detect traffic of pods.
        masquerades_all: whether it masquerades every packet to a cluster IP.
        node_ports: the networks whose addresses serve node ports; all addresses of a family that has none here.
        leaves_hidden: whether nodes masquerade packets of pods that leave the pod network, without the proxy.
    """

    detects: bool = True
    masquerades_all: bool = False
    node_ports: tuple[IPNetwork, ...] = ()
    leaves_hidden: bool = False

    @classmethod
    def of(cls, scenario: Scenario, mode: str) -> "Terms":
        """The settings of a scenario in one mode."""
        proxy = scenario.proxy or ProxyConfiguration()
        settings = MODES[mode].settings(proxy, scenario.network.pod_cidrs)
        return cls(
            detects=proxy.detect_local_mode is not DetectLocalMode.CLUSTER_CIDR or proxy.cluster_cidrs != (),
            masquerades_all=settings.masquerade_all,
            node_ports=proxy.node_port_addresses,
            leaves_hidden=scenario.network.outbound_masquerade,
        )


class DiallerKind(StrEnum):
    """The kinds of senders."""

    POD = "pod"
    NODE = "node"
    HOST = "host"


class Dialler(Struct, frozen=True, kw_only=True):
    """A sender of path tests. ``node`` is a pod's node or the node itself; ``backs`` says that it is an endpoint."""

    name: str
    kind: DiallerKind
    node: str
    addresses: tuple[IPAddress, ...]
    backs: bool = False

    def address(self, family: Family) -> IPAddress | None:
        return next((each for each in self.addresses if Family.of(each) is family), None)


class PathTest(Struct, frozen=True, kw_only=True):
    """One frontend dialled by one sender.

    Attributes:
        node: the node that translates.
        at: the dialled address, for a node port.
        expected: the endpoints that may get the packets.
        hidden: whether endpoints must see an address of the node; ``None`` where either source is right.
    """

    dialler: Dialler
    frontend: FrontendAddress
    node: str
    at: IPAddress | None
    expected: tuple[Backend, ...]
    hidden: bool | None

    def __str__(self) -> str:
        return f"{self.dialler.name} to the {self.frontend}" + (
            f" of {self.node}" if self.at is not None else f" by {self.node}"
        )


def diallers(
    subject: DiagnosedService, scenario: Scenario, addresses: Mapping[str, tuple[IPAddress, ...]]
) -> tuple[Dialler, ...]:
    """All senders, in this order: running pods with a network of their own, hosts, nodes."""
    names = {name for group in scenario.pods for name in group.pod_names if not group.host_network}
    behind = {each.addresses[0] for each, _, _ in subject.endpoints()}
    pods = [
        Dialler(
            name=pod.name,
            kind=DiallerKind.POD,
            node=pod.node_name,
            addresses=pod.addresses,
            backs=not behind.isdisjoint(pod.addresses),
        )
        for pod in subject.pods
        if pod.name in names and not pod.terminating
    ]
    hosts = [
        Dialler(name=host.name, kind=DiallerKind.HOST, node="", addresses=addresses[host.name])
        for host in scenario.hosts
    ]
    nodes = [
        Dialler(name=node.name, kind=DiallerKind.NODE, node=node.name, addresses=node.addresses)
        for node in subject.nodes
    ]
    return (*pods, *hosts, *nodes)


def path_tests(
    subject: DiagnosedService,
    terms: Mapping[str, Terms],
    senders: Sequence[Dialler],
    nodes: Sequence[str],
    sender: str | None,
) -> tuple[PathTest, ...]:
    """One path test of every frontend on each of ``nodes``, by ``sender`` or else by the likeliest client."""
    found: list[PathTest] = []
    for frontend in subject.frontends:
        for node in nodes:
            for dialler in _candidates(frontend, node, senders, sender):
                path_test = _path_test(subject, terms[node], dialler, frontend, node)
                if path_test is not None:
                    found.append(path_test)
                    break
    return tuple(found[:_MOST_TESTS])


def hairpin_tests(
    subject: DiagnosedService, terms: Mapping[str, Terms], senders: Sequence[Dialler], nodes: Sequence[str]
) -> tuple[PathTest, ...]:
    """Path tests of endpoints that dial their own Service, those on different nodes first."""
    found: list[PathTest] = []
    for frontend in subject.frontends:
        if frontend.is_internal:
            own = [each for each in senders if each.backs and each.kind is DiallerKind.POD and each.node in nodes]
            found += filter(
                None, (_path_test(subject, terms[dialler.node], dialler, frontend, dialler.node) for dialler in own)
            )
    found = [
        path_test
        for path_test in found
        if any(address in path_test.dialler.addresses for address, _ in path_test.expected)
    ]
    firsts: dict[tuple[str, FrontendAddress], PathTest] = {}
    for path_test in found:
        firsts.setdefault((path_test.node, path_test.frontend), path_test)
    rest = [path_test for path_test in found if path_test not in firsts.values()]
    return tuple([*firsts.values(), *rest][:_MOST_HAIRPINS])


def _candidates(
    frontend: FrontendAddress, node: str, senders: Sequence[Dialler], sender: str | None
) -> Iterator[Dialler]:
    """The senders whose packets to a frontend ``node`` translates, the likeliest first."""
    if sender is not None:
        chosen = [each for each in senders if each.name == sender]
        yield from (each for each in chosen if frontend.via is Frontend.NODE_PORT or _translates(each, node))
        return
    here = [each for each in senders if each.node == node and not each.backs]
    pods = [each for each in here if each.kind is DiallerKind.POD]
    node_itself = [each for each in here if each.kind is DiallerKind.NODE]
    hosts = [each for each in senders if each.kind is DiallerKind.HOST]
    others = [each for each in senders if each.kind is DiallerKind.NODE and each.node != node]
    if frontend.is_internal:
        yield from (*pods, *node_itself)
    elif frontend.via is Frontend.NODE_PORT:
        yield from (*hosts, *others, *pods, *node_itself)
    else:
        yield from (*hosts, *pods, *node_itself)


def _translates(dialler: Dialler, node: str) -> bool:
    """Whether a node translates what the sender sends to an address of the Service."""
    return dialler.kind is DiallerKind.HOST or dialler.node == node


def _path_test(
    subject: DiagnosedService, terms: Terms, dialler: Dialler, frontend: FrontendAddress, node: str
) -> PathTest | None:
    """The path test; ``None`` where the Service lets the sender not in, or the sender has no address of the family."""
    address = dialler.address(frontend.family)
    of_node = next((each.addresses for each in subject.nodes if each.name == node), ())
    at = next((each for each in of_node if Family.of(each) is frontend.family), None)
    if address is None or (frontend.via is Frontend.NODE_PORT and not _serves_node_ports(terms, at)):
        return None
    ranges = [each for each in subject.service.source_ranges if each.version == address.version]
    if frontend.via is Frontend.LOAD_BALANCER_IP and ranges and not any(address in each for each in ranges):
        return None
    expected = subject.expected(frontend, node, from_outside=_is_outside(dialler, node, terms))
    if not expected:
        return None
    return PathTest(
        dialler=dialler,
        frontend=frontend,
        node=node,
        at=at if frontend.via is Frontend.NODE_PORT else None,
        expected=expected,
        hidden=_hidden(subject, terms, dialler, frontend, node, expected),
    )


def nodes_at(
    subject: DiagnosedService, terms: Mapping[str, Terms], nodes: Sequence[str]
) -> Iterator[tuple[str, IPAddress]]:
    """Nodes with the addresses at which they serve node ports, one of each of the Service's families."""
    for node in subject.nodes:
        for family in subject.families if node.name in nodes else ():
            at = next((each for each in node.addresses if Family.of(each) is family), None)
            if at is not None and _serves_node_ports(terms[node.name], at):
                yield node.name, at


def askers(senders: Sequence[Dialler], node: str, address: IPAddress) -> Iterator[str]:
    """The senders that may dial a node's health check: hosts, then other nodes, then pods elsewhere, then the node."""
    order = {DiallerKind.HOST: 0, DiallerKind.NODE: 1, DiallerKind.POD: 2}
    able = [each for each in senders if each.address(Family.of(address)) is not None]
    yield from (each.name for each in sorted(able, key=lambda each: (each.node == node, order[each.kind])))


def _is_outside(dialler: Dialler, node: str, terms: Terms) -> bool:
    """Whether a node treats the sender as a client from outside: also a pod, where the proxy cannot detect pods."""
    if dialler.kind is DiallerKind.POD:
        return not terms.detects
    return dialler.kind is DiallerKind.HOST or dialler.node != node


def _serves_node_ports(terms: Terms, address: IPAddress | None) -> bool:
    """Whether an address serves node ports, by ``nodePortAddresses``."""
    if address is None:
        return False
    of_family = [each for each in terms.node_ports if each.version == address.version]
    return not of_family or any(address in each for each in of_family)


def _hidden(
    subject: DiagnosedService,
    terms: Terms,
    dialler: Dialler,
    frontend: FrontendAddress,
    node: str,
    expected: Sequence[Backend],
) -> bool | None:
    """Whether endpoints must see an address of the node that translates.

    ``None`` where the source cannot decide: a node that dials itself may have the same address before and after; the
    network itself may masquerade packets that leave the pod network; an endpoint that is a node may forward.
    """
    if (dialler.kind is DiallerKind.NODE and dialler.node == node) or any(
        subject.is_of_node(each) for each, _ in expected
    ):
        return None
    leaves = terms.leaves_hidden and dialler.kind is DiallerKind.POD
    if leaves and (frontend.via is Frontend.NODE_PORT or any(subject.pod_at(each) is None for each, _ in expected)):
        return None
    if not frontend.is_internal:
        return subject.service.external_traffic_policy is not TrafficPolicy.LOCAL
    if dialler.kind is DiallerKind.POD:
        return terms.masquerades_all
    return terms.masquerades_all or terms.detects
