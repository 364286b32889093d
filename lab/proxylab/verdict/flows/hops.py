"""Hops by their names, and what each node changed of a request on its way.

A Service translates a packet once: the first node makes a pod its destination, and may masquerade it in the same pass.
An endpoint that is a node port of another node is translated there once more, since its address is no pod's. No Service
asks another node to change a packet that is already addressed to a pod (``second_nat``). The first node's connection
tracking does not know the second translation, so it contradicts the pod's tap. The packets captured at every hop
decide: only the second node can have changed a packet between coming in and leaving.
"""

from collections.abc import Iterable
from itertools import pairwise, zip_longest

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Leg, Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows.flows import Flow


def last_destination(flow: Flow) -> str:
    """Where a tap last saw the request go, translated if it was: a kernel may send it again, and rules drop that."""
    requests = [stop for stop in flow.stops if stop.packet is Packet.REQUEST]
    translated = [stop for stop in requests if stop.went.destination != requests[0].came.destination]
    return (translated or requests)[-1].went.destination if requests else ""


def ended_in(flows: Iterable[Flow]) -> frozenset[str]:
    """Where requests were seen last: the namespaces that they came into, or whose programs sent them.

    The result is empty where one of them was seen last as it left: it ended in no namespace that the taps know.
    """
    last = [flow.last_seen for flow in flows]
    if any(seen is None or (seen.direction is Direction.OUT and seen.device != STACK) for seen in last):
        return frozenset()
    return frozenset(seen.netns_name for seen in last if seen is not None)


def seen_untranslated(flow: Flow, dialled: tuple[IPAddress, int]) -> Observation | None:
    """The request leaving a node's device, or coming in at a pod or host, under the address that was dialled.

    A request that leaves a node has passed that node's translation. A later node may still translate it
    (``seen_translated``).
    """
    out = [each for each in flow.passages if each.direction is Direction.OUT and each.packet is Packet.REQUEST]
    return next((each for each in (*out, *flow.strays) if (each.destination, each.destination_port) == dialled), None)


def seen_translated(flow: Flow, dialled: tuple[IPAddress, int]) -> Observation | None:
    """The request on its path, or where it came in, under another address than the dialled one."""
    seen = [each for each in (*flow.passages, *flow.strays) if each.packet is Packet.REQUEST]
    return next((each for each in seen if (each.destination, each.destination_port) != dialled), None)


def hop(seen: Observation) -> str:
    """A hop as ``expect.at`` writes it; the node alone for its own programs."""
    return seen.netns_name if seen.device == STACK else f"{seen.netns_name}/{seen.device}"


def is_at(seen: Observation, where: str) -> bool:
    """Whether ``expect.at`` names this hop, as NODE or as NODE/DEVICE."""
    return where in (seen.netns_name, f"{seen.netns_name}/{seen.device}")


class Translation(Struct, frozen=True):
    """A request as it came to a node, and as the node sent it on."""

    node: str
    came: Observation
    went: Observation

    @property
    def of_destination(self) -> bool:
        """Whether the node changed the destination."""
        came, went = self.came, self.went
        return (came.destination, came.destination_port) != (went.destination, went.destination_port)


class SecondNat(Struct, frozen=True):
    """The last translation that a Service asks for, and the one that no Service asks for."""

    first: Translation
    second: Translation

    def __str__(self) -> str:
        return self.clause()

    def clause(self, by_first: str = "", by_second: str = "") -> str:
        """Both as a clause; ``by_first`` and ``by_second`` name the rule behind each."""
        first, second = self.first, self.second
        other_port = not second.of_destination and second.came.source == second.went.source
        return (
            f"{first.node} translated {_shown(first.came)} to {_shown(first.went)}{by_first}, and {second.node} "
            f"translated that to {_shown(second.went, port=other_port)}{by_second}"
        )


def second_nat(flow: Flow, resolved: ResolvedProbe) -> SecondNat | None:
    """The second translation of a flow; ``None`` without one, or if the taps missed a hop."""
    changes = _changes(flow)
    for first, second in pairwise(changes):
        if any(
            second.came.destination == each.address and (not each.ports or second.came.destination_port in each.ports)
            for each in resolved.receivers
        ):
            return SecondNat(first, second)
    return None


def _changes(flow: Flow) -> list[Translation]:
    """What each node changed between the sender and the pod, one entry for each pass through a node."""
    found, whole = list[Translation](), [stop for stop in flow.way if stop.leg is Leg.OWN]
    for stop, following in zip_longest(whole, whole[1:]):
        if stop.came != stop.went:
            found.append(Translation(stop.netns_name, stop.seen[0], stop.seen[-1]))
        if following is not None and following.came != stop.went:
            node = stop.netns_name if following.seen[0].device == STACK else following.netns_name
            found.append(Translation(node, stop.seen[-1], following.seen[0]))
    return _in_order_of_nodes(found)


def _in_order_of_nodes(changes: list[Translation]) -> list[Translation]:
    """Successive changes by one node become one: a bridge shows a packet between DNAT and masquerading."""
    merged: list[Translation] = []
    for change in changes:
        if merged and merged[-1].node == change.node:
            merged[-1] = Translation(change.node, merged[-1].came, change.went)
        else:
            merged.append(change)
    return merged


def _shown(seen: Observation, *, port: bool = False) -> str:
    """Source and destination; the source port, which differs from flow to flow, only where the node changed it."""
    source = endpoint(seen.source, seen.source_port) if port else str(seen.source)
    return f"{source} > {endpoint(seen.destination, seen.destination_port)}"
