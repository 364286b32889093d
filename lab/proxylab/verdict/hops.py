"""What the hops of flows show: where they were seen, what nodes and links did to their packets, and who answered.

Second translations. A Service translates a packet once: the first node makes a pod its destination, and may masquerade
it in the same pass. An endpoint that is a node port of another node is translated there once more, since its address is
no pod's. No Service asks another node to change a packet that is already addressed to a pod (``second_nat``). The first
node's connection tracking does not know the second translation, so it contradicts the pod's tap. The packets captured
at every hop decide: only the second node can have changed a packet between coming in and leaving.

Copies. Where a flow arrived, each node forwarded or consumed every packet that came to it. A packet that came to a node
and neither left it nor reached a program on it is a copy, unless the sender repeated a lost packet or the taps missed a
hop (``Flow.way``). What crosses a bridge counts at the bridge's ports, since the bridge itself sees some of it a second
time. A frame under another device's MAC does not count: a node that does not bridge it drops it.

Links with netem. Each end of such a link has a tap, and netem works between the two. A packet that left a device and
came in nowhere has met no further rule, so it was lost on a link. It is netem's loss if the counters of netem there
account for all packets that disappeared behind that device.

Answers. Every device of a node, pod and outside host has a tap. So what a tap first saw going out was made behind that
device, and what a tap first saw coming in was made by a machine without taps: a router (``origin``).

Changes. A proxy changes addresses and ports, and nothing else. An ICMP error or a reset is the answer to one packet, so
it must not come twice.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Altered, Direction, Evidence, Leg, LinkCount, Observation, Packet, Part
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.plan.device_names import POD_BRIDGE
from proxylab.plan.model import Plan, Role
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows import Fate, Flow


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
        times_left = Counter(left)
        for number, packets in Counter(came).items():
            if number >= len(flows) or fates[number] not in _ENDED:
                continue
            whole = flows[number].way if packet is Packet.REQUEST else flows[number].way_back
            if packets - times_left[number] > _lost(flows[number], packet) and whole:
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


def link_words(link: LinkCount) -> str:
    """A link, with what its netem does."""
    return f"the link of {link.link} ({link.netem or 'with netem until now'})"


def lost_on_links(evidence: Evidence, flows: Sequence[Flow]) -> Mapping[int, str]:
    """The flows whose request or answer a link lost, each with a clause that names the link."""
    dropping = [link for link in evidence.links if link.dropped]
    if not dropping:
        return {}
    vanished: defaultdict[str, list[int]] = defaultdict(list)
    for flow in flows:
        # A bridge floods frames to a machine from which it never gets one; the stacks of the others drop them.
        last = max((seen for seen in flow.hops if not seen.otherhost), key=lambda seen: seen.at, default=None)
        if last is not None and last.direction is Direction.OUT and last.device != STACK and not _is_over(flow):
            vanished[f"{last.netns_name}/{last.device}"].append(flow.number)
    found: dict[int, str] = {}
    for where, numbers in vanished.items():
        links = [link for link in dropping if where in link.behind]
        dropped = sum(link.dropped for link in links)
        if len(numbers) <= dropped:
            names = listed(list(dict.fromkeys(map(link_words, links))), "or")
            clause = f"{names} lost it behind {where}, where netem dropped {amount(dropped, 'packet')}"
            found |= dict.fromkeys(numbers, clause)
    return found


def _is_over(flow: Flow) -> bool:
    """Whether the sender has its answer."""
    return bool(flow.replies or flow.resets or flow.unreachables or flow.errors)


def copied_on_link(resolved: ResolvedProbe, evidence: Evidence, flow: Flow) -> bool:
    """Whether a link copied the request of a flow or its answer: each node passed on as many packets as came to it."""
    if not any(link.copies for link in evidence.links) or len(flow.reached) > 1 or flow.strays or flow.stray_replies:
        return False
    passed = [each for each in flow.passages if each.device != STACK and each.packet in (Packet.REQUEST, Packet.REPLY)]
    came = Counter((each.netns_name, each.packet) for each in passed if each.direction is Direction.IN)
    left = Counter((each.netns_name, each.packet) for each in passed if each.direction is Direction.OUT)
    return all(left[where] <= packets for where, packets in came.items() if where[0] in resolved.nodes)


def dropped_meanwhile(links: Sequence[LinkCount]) -> str:
    """The clause that links dropped packets during the probe or step; empty if none did."""
    dropping = [link for link in links if link.dropped]
    if not dropping:
        return ""
    names = listed(list(dict.fromkeys(map(link_words, dropping))))
    return f"{names} dropped {amount(sum(link.dropped for link in dropping), 'packet')} meanwhile"


class Origin(Struct, frozen=True):
    """The first sighting of an answer. ``maker`` is the namespace that made it; empty where no tap saw that."""

    seen: Observation
    maker: str


def origin(flow: Flow, packet: Packet) -> Origin | None:
    """Where an answer of that kind was seen first; ``None`` where only the sender saw it, or no tap did."""
    on_the_way = (*flow.passages, *flow.answers, *flow.answers_from_wrong_address, *flow.refusals, *flow.relays)
    seen = [each for each in on_the_way if each.packet is packet]
    first = min(seen, key=lambda each: (each.at, each.direction is Direction.IN), default=None)
    if first is None:
        return None
    made_there = first.direction is Direction.OUT or first.device == STACK
    return Origin(first, first.netns_name if made_there else "")


_ICMP = frozenset({Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP})


def altered_clauses(altered: Iterable[Altered], *, replies: bool) -> Mapping[int, str]:
    """How the replies of flows came otherwise than they were sent, or their requests and all else, by flow number."""
    found = defaultdict[int, list[Altered]](list)
    for each in altered:
        if (each.packet is Packet.REPLY) is replies:
            found[each.flow].append(each)
    return {flow: _clause(several) for flow, several in found.items()}


def data_changed(what: str, at: str = "") -> str:
    """The clause that a request, a reply or an error came with other data than it was sent, as far as known where."""
    return f"the data of the {what} had changed on the way{at and f' when it came to {at}'}"


def turned_away_again(resolved: ResolvedProbe, evidence: Evidence, flow: Flow) -> str:
    """The clause that more resets or ICMP errors came than packets were sent; empty if each answers one."""
    heard, sent = max(len(flow.resets), len(flow.unreachables) + len(flow.errors)), max(1, len(flow.departures))
    if heard <= sent or copied_on_link(resolved, evidence, flow):
        return ""
    kind = "a reset" if len(flow.resets) == heard else "an ICMP error"
    return f"{resolved.sender.name} sent it {times(sent)}, and heard {kind} {times(heard)}"


def _clause(several: Sequence[Altered]) -> str:
    first = several[0]
    what = "reset" if first.packet is Packet.RESET else "ICMP error" if first.packet in _ICMP else str(first.packet)
    at = f"{first.netns_name}/{first.device}" if first.device else first.netns_name
    if first.part is Part.DATA:
        return data_changed(what, at)
    if first.part is Part.CHECKSUM:
        return f"the {what} came to {at} with a wrong IP checksum"
    if first.part is Part.DSCP:
        return f"the {what} came to {at} with DSCP {first.seen}, and was sent with {first.sent}"
    return f"the {what} quotes another packet than was sent: {first.seen}, not {first.sent}"
