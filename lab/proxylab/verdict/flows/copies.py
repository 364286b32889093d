"""Copies of packets: which pods and hosts got one, and which ended at a node.

Where a flow arrived, each node forwarded or consumed every packet that came to it. A packet that came to a node and
neither left it nor reached a program on it is a copy, unless the sender repeated a lost packet or the taps missed a hop
(``hops.way``).

It counts what crosses a bridge at the bridge's ports, since the bridge itself sees some of it a second time. It does
not count a frame under another device's MAC: a node that does not bridge it drops it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from proxylab.evidence.evidence import Direction, Evidence, Leg, Observation, Packet
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.device_names import POD_BRIDGE
from proxylab.plan.model import Plan, Role
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows.flows import Fate, Flow

_ENDED: Final = frozenset({Fate.DELIVERED, Fate.REFUSED})


def copies(strays: Sequence[Observation]) -> str:
    """Where copies came in, and their destinations."""
    found = [f"{each.netns_name}/{each.device}, addressed to {_to(each)}" for each in strays]
    return listed(list(dict.fromkeys(found)))


def copying(flow: Flow, strays: Sequence[Observation], plan: Plan | None) -> str:
    """Which pods or hosts got copies, which node's device sent them there, and which pod answered."""
    clauses = [f"a copy came in at {copies([each])}{_sent_by(each, plan)}" for each in strays]
    clauses += [f"{each.netns_name} answered it" for each in flow.answers_from_wrong_address]
    return "; ".join(dict.fromkeys(clauses))


def _sent_by(stray: Observation, plan: Plan | None) -> str:
    """The device at the other end of the link, if a node has it."""
    if plan is None:
        return ""
    try:
        end = plan.peer(stray.netns_name, stray.device)
    except KeyError:
        return ""
    sent = f", which {end.namespace} sent out of its device {end.device}"
    return sent if plan.namespace(end.namespace).role is Role.NODE else ""


def lost_copies(
    evidence: Evidence, resolved: ResolvedProbe, flows: Sequence[Flow], fates: Sequence[Fate | None], packet: Packet
) -> Mapping[int, str]:
    """Flows that arrived while a copy of their request or reply ended at a node; and where it ended.

    Empty where a tap lost frames: a packet that no tap saw leave may have left.
    """
    if any(loss.frames for loss in evidence.losses):
        return {}
    found: dict[int, str] = {}
    for node, (came, left) in _by_node(evidence, resolved, packet).items():
        if sorted(came) == sorted(left):
            continue
        counted = Counter(left)
        for number, packets in Counter(came).items():
            if number >= len(flows) or fates[number] not in _ENDED:
                continue
            whole = flows[number].way if packet is Packet.REQUEST else flows[number].way_back
            if packets - counted[number] > _lost(flows[number], packet) and whole:
                where = _ended_at(flows[number], node, packet)
                if where:
                    found.setdefault(number, where)
    return found


def _lost(flow: Flow, packet: Packet) -> int:
    """How many packets may have ended on the way: those that were repeated on a leg. Without a reply, any number."""
    request = packet is Packet.REQUEST
    sent, got = (flow.departures, flow.arrivals) if request else (flow.answers, flow.replies)
    relays = [each for each in flow.relays if each.packet is packet]
    left = Counter(each.leg for each in (*sent, *(each for each in relays if each.direction is Direction.OUT)))
    came = Counter(each.leg for each in (*got, *(each for each in relays if each.direction is Direction.IN)))
    return (left - came).total() if request or flow.replies else left.total()


def _ended_at(flow: Flow, node: str, packet: Packet) -> str:
    """The device of a node by which the last came in; empty for packets that a program of the node sent."""
    came = [
        each
        for each in flow.passages
        if each.netns_name == node and each.packet is packet and each.direction is Direction.IN and not each.otherhost
    ]
    last = max(came, key=lambda each: each.at, default=None)
    return "" if last is None else f"{node}/{last.device}, addressed to {_to(last)}"


def _by_node(evidence: Evidence, resolved: ResolvedProbe, packet: Packet) -> dict[str, tuple[list[int], list[int]]]:
    """For each node, the flow numbers of packets that came to it, and of those that it forwarded or consumed."""
    found: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    nodes = frozenset(resolved.nodes)
    for seen in evidence.observations:
        if seen.leg is Leg.TRIED:
            continue
        if seen.packet is packet and seen.netns_name in nodes and seen.device != POD_BRIDGE and not seen.otherhost:
            # A packet to a program leaves the devices, and a packet from a program comes to them.
            gone = (seen.direction is Direction.OUT) is (seen.device != STACK)
            found[seen.netns_name][gone].append(seen.flow)
    return found


def _to(seen: Observation) -> str:
    return endpoint(seen.destination, seen.destination_port)
