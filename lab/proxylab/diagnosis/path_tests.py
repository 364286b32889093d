"""Which packets show whether a Service works: who dials which front, where that is translated, and what is due of it.

Owns: ``Walk``, and ``walks`` and ``loops``, which choose them.
Must not: send. Fronts that a policy lets nobody in by are not walked.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from proxylab.cluster.configuration import DetectLocalMode, ProxyConfiguration
from proxylab.cluster.objects import TrafficPolicy
from proxylab.diagnosis.subject import Backend, FrontAt, Subject
from proxylab.frozen import dataclass
from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.scenario.model import Front, Scenario

__all__ = ["Kind", "Terms", "Walk", "Walker", "askers", "loops", "nodes_at", "walkers", "walks"]

_MOST = 64
"""How many walks there are at most; a round is no load test."""
_MOST_LOOPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What besides the objects decides who is let in, and as whom.

    Attributes:
        detects: whether a proxy can tell pods from others.
        masquerades_all: whether it hides everybody who dials a cluster IP.
        node_ports: where node ports are served; everywhere, if there are none of a family.
        leaves_hidden: whether nodes hide what their pods send out of the pod network, whatever a proxy does.
    """

    detects: bool = True
    masquerades_all: bool = False
    node_ports: tuple[IPNetwork, ...] = ()
    leaves_hidden: bool = False

    @classmethod
    def of(cls, scenario: Scenario, mode: str) -> "Terms":
        """Those of a scenario, by the keys that a mode looks at."""
        proxy = scenario.proxy or ProxyConfiguration()
        of_mode = proxy.nftables.masquerade_all if mode == "nftables" else proxy.masquerade_all
        return cls(
            detects=proxy.detect_local_mode is not DetectLocalMode.CLUSTER_CIDR or proxy.cluster_cidrs != (),
            masquerades_all=of_mode,
            node_ports=proxy.node_port_addresses,
            leaves_hidden=scenario.network.outbound_masquerade,
        )


class Kind(StrEnum):
    """What somebody who dials is."""

    POD = "pod"
    NODE = "node"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Walker:
    """Somebody who can dial. ``node`` is a pod's node, or the node itself; ``backs`` the Service if its endpoint is."""

    name: str
    kind: Kind
    node: str
    addresses: tuple[IPAddress, ...]
    backs: bool = False

    def address(self, family: Family) -> IPAddress | None:
        """Its address of a family."""
        return next((each for each in self.addresses if Family.of(each) is family), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One front dialled by somebody.

    Attributes:
        walker: who dials.
        front: what is dialled.
        node: which translates.
        at: the address that is dialled, if it is the node's.
        due: the endpoints that may be reached.
        hidden: whether they must see an address of the node; ``None`` where either is right.
    """

    walker: Walker
    front: FrontAt
    node: str
    at: IPAddress | None
    due: tuple[Backend, ...]
    hidden: bool | None

    def __str__(self) -> str:
        return f"{self.walker.name} to the {self.front}" + (
            f" of {self.node}" if self.at is not None else f" by {self.node}"
        )


def walkers(subject: Subject, scenario: Scenario, addresses: Mapping[str, tuple[IPAddress, ...]]) -> tuple[Walker, ...]:
    """Everybody who can dial: pods that are there and have a network of their own, hosts, nodes; in this order."""
    names = {name for group in scenario.pods for name in group.pod_names if not group.host_network}
    behind = {each.addresses[0] for each, _, _ in subject.endpoints()}
    pods = [
        Walker(
            name=pod.name,
            kind=Kind.POD,
            node=pod.node_name,
            addresses=pod.addresses,
            backs=not behind.isdisjoint(pod.addresses),
        )
        for pod in subject.pods
        if pod.name in names and not pod.terminating
    ]
    hosts = [Walker(name=host.name, kind=Kind.HOST, node="", addresses=addresses[host.name]) for host in scenario.hosts]
    nodes = [Walker(name=node.name, kind=Kind.NODE, node=node.name, addresses=node.addresses) for node in subject.nodes]
    return (*pods, *hosts, *nodes)


def walks(
    subject: Subject, terms: Terms, everybody: Sequence[Walker], nodes: Sequence[str], sender: str | None
) -> tuple[Walk, ...]:
    """One walk to every front for each of ``nodes``, by ``sender`` or by whoever is the likeliest to dial it."""
    found: list[Walk] = []
    for front in subject.fronts:
        for node in nodes:
            for walker in _candidates(front, node, everybody, sender):
                walk = _walk(subject, terms, walker, front, node)
                if walk is not None:
                    found.append(walk)
                    break
    return tuple(found[:_MOST])


def loops(subject: Subject, terms: Terms, everybody: Sequence[Walker], nodes: Sequence[str]) -> tuple[Walk, ...]:
    """Endpoints that dial their own Service, those on different nodes first."""
    found: list[Walk] = []
    for front in subject.fronts:
        if front.is_internal:
            own = [each for each in everybody if each.backs and each.kind is Kind.POD and each.node in nodes]
            found += filter(None, (_walk(subject, terms, walker, front, walker.node) for walker in own))
    found = [walk for walk in found if any(address in walk.walker.addresses for address, _ in walk.due)]
    firsts: dict[tuple[str, FrontAt], Walk] = {}
    for walk in found:
        firsts.setdefault((walk.node, walk.front), walk)
    rest = [walk for walk in found if walk not in firsts.values()]
    return tuple([*firsts.values(), *rest][:_MOST_LOOPS])


def _candidates(front: FrontAt, node: str, everybody: Sequence[Walker], sender: str | None) -> Iterator[Walker]:
    """Who may dial a front so that ``node`` translates it, the likeliest first."""
    if sender is not None:
        chosen = [each for each in everybody if each.name == sender]
        yield from (each for each in chosen if front.via is Front.NODE_PORT or _translates(each, node))
        return
    here = [each for each in everybody if each.node == node and not each.backs]
    pods = [each for each in here if each.kind is Kind.POD]
    node_itself = [each for each in here if each.kind is Kind.NODE]
    hosts = [each for each in everybody if each.kind is Kind.HOST]
    others = [each for each in everybody if each.kind is Kind.NODE and each.node != node]
    if front.is_internal:
        yield from (*pods, *node_itself)
    elif front.via is Front.NODE_PORT:
        yield from (*hosts, *others, *pods, *node_itself)
    else:
        yield from (*hosts, *pods, *node_itself)


def _translates(walker: Walker, node: str) -> bool:
    """Whether a node translates what somebody sends to an address of the Service: its own, or one that enters there."""
    return walker.kind is Kind.HOST or walker.node == node


def _walk(subject: Subject, terms: Terms, walker: Walker, front: FrontAt, node: str) -> Walk | None:
    """The walk; ``None`` where the Service promises that nobody comes in so, or the walker has no such address."""
    address = walker.address(front.family)
    of_node = next((each.addresses for each in subject.nodes if each.name == node), ())
    at = next((each for each in of_node if Family.of(each) is front.family), None)
    if address is None or (front.via is Front.NODE_PORT and not _serves_node_ports(terms, at)):
        return None
    ranges = [each for each in subject.service.source_ranges if each.version == address.version]
    if front.via is Front.LOAD_BALANCER_IP and ranges and not any(address in each for each in ranges):
        return None
    due = subject.due(front, node, from_outside=_is_outside(walker, node, terms))
    if not due:
        return None
    return Walk(
        walker=walker,
        front=front,
        node=node,
        at=at if front.via is Front.NODE_PORT else None,
        due=due,
        hidden=_hidden(subject, terms, walker, front, node, due),
    )


def nodes_at(subject: Subject, terms: Terms, nodes: Sequence[str]) -> Iterator[tuple[str, IPAddress]]:
    """Nodes with the addresses at which they serve node ports, one of each of the Service's families."""
    for node in subject.nodes:
        for family in subject.families if node.name in nodes else ():
            at = next((each for each in node.addresses if Family.of(each) is family), None)
            if at is not None and _serves_node_ports(terms, at):
                yield node.name, at


def askers(everybody: Sequence[Walker], node: str, address: IPAddress) -> Iterator[str]:
    """Who may ask a node itself, as a balancer does: hosts, then other nodes, then pods elsewhere, then the node."""
    order = {Kind.HOST: 0, Kind.NODE: 1, Kind.POD: 2}
    able = [each for each in everybody if each.address(Family.of(address)) is not None]
    yield from (each.name for each in sorted(able, key=lambda each: (each.node == node, order[each.kind])))


def _is_outside(walker: Walker, node: str, terms: Terms) -> bool:
    """Whether a node takes somebody for a client from outside: also a pod, where nothing tells pods from others."""
    if walker.kind is Kind.POD:
        return not terms.detects
    return walker.kind is Kind.HOST or walker.node != node


def _serves_node_ports(terms: Terms, address: IPAddress | None) -> bool:
    """Whether node ports are served at an address, by ``nodePortAddresses``."""
    if address is None:
        return False
    of_family = [each for each in terms.node_ports if each.version == address.version]
    return not of_family or any(address in each for each in of_family)


def _hidden(
    subject: Subject, terms: Terms, walker: Walker, front: FrontAt, node: str, due: Sequence[Backend]
) -> bool | None:
    """Whether endpoints must see an address of the node that translates.

    A node that dials itself may have the same address before and after, so of that nothing is said. Nor is it where the
    wire masquerades by itself what pods send out of their network, and where an endpoint is a node, which may pass on.
    """
    if (walker.kind is Kind.NODE and walker.node == node) or any(subject.is_of_node(each) for each, _ in due):
        return None
    leaves = terms.leaves_hidden and walker.kind is Kind.POD
    if leaves and (front.via is Front.NODE_PORT or any(subject.pod_at(each) is None for each, _ in due)):
        return None
    if not front.is_internal:
        return subject.service.external_traffic_policy is not TrafficPolicy.LOCAL
    if walker.kind is Kind.POD:
        return terms.masquerades_all
    return terms.masquerades_all or terms.detects
