"""Where one flow was: its sightings in order, as stops, and the last of them.

A stop is one packet in one node, pod or host, from its first sighting there to its last. Where a flow ended, and what
each node changed, follow from the stops.

A program between two legs stands between two stops in its node: the request goes up to it on the first leg and leaves
it on the second, and the reply comes back in the other order. So the hops follow the legs, not the clock: the program
accepts the first leg before it opens the second.

A Service translates a packet once: the first node makes a pod its destination, and may masquerade it in the same pass.
An endpoint that is a node port of another node is translated there once more, since its address is no pod's. No Service
asks another node to change a packet that is already addressed to a pod (``second_nat``). The first node's connection
tracking does not know the second translation, so it contradicts the pod's tap. The packets captured at every hop
decide: only the second node can have changed a packet between coming in and leaving.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Leg, Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows.flows import Flow


class Ends(Struct, frozen=True):
    """From where to where a packet goes, each as an address with its port."""

    source: str
    destination: str


class Stop(Struct, frozen=True):
    """One packet in one node, pod or host, from its first sighting there to its last.

    Attributes:
        seen: the sightings, in the order of time.
        follows: whether the packet may have come there from the stop before.
        relayed: whether a program ended the leg of the stop before, and opened this one.
    """

    seen: tuple[Observation, ...]
    follows: bool
    relayed: bool = False

    @property
    def netns_name(self) -> str:
        """The node, pod or host."""
        return self.seen[0].netns_name

    @property
    def packet(self) -> Packet:
        """Its kind: request, reply or ICMP error."""
        return self.seen[0].packet

    @property
    def leg(self) -> Leg:
        """The leg that it belongs to."""
        return self.seen[0].leg

    @property
    def came(self) -> Ends:
        """Its addresses as it came or was generated."""
        return _ends(self.seen[0])

    @property
    def went(self) -> Ends:
        """Its addresses at its last sighting there."""
        return _ends(self.seen[-1])

    @property
    def left(self) -> bool:
        return self.seen[-1].direction is Direction.OUT

    @property
    def by(self) -> str:
        """The device by which it came; empty for a packet generated there."""
        return self.seen[0].device if self.seen[0].direction is Direction.IN else ""

    @property
    def out(self) -> str:
        """The device by which it left; empty if it did not."""
        return self.seen[-1].device if self.left else ""


def hops(flow: Flow) -> tuple[Observation, ...]:
    """Every observation of a flow, in the order of time.

    The kernel gives no time in OUTPUT, so a program's reply carries the time of the run's beginning. It sorts behind
    the request that the program got. The same holds for what a program between two legs sends: it opens its leg.
    """
    kinds = (
        flow.departures,
        flow.passages,
        flow.strays,
        flow.flooded,
        flow.arrivals,
        flow.answers,
        flow.answers_from_wrong_address,
        flow.replies,
        flow.stray_replies,
        flow.resets,
        flow.unreachables,
        flow.errors,
        flow.relays,
        flow.tries,
        () if flow.arrivals else flow.closings,
    )
    if flow.relays or flow.tries:
        return tuple(sorted((each for kind in kinds for each in kind), key=_in_order_of_legs))
    seen_at_all = [each for kind in kinds for each in kind]
    got = max((_came_up(flow, arrival, seen_at_all) for arrival in flow.arrivals), default=0)
    return tuple(sorted(seen_at_all, key=lambda seen: max(_came_up(flow, seen, seen_at_all), _not_before(seen, got))))


def _in_order_of_legs(seen: Observation) -> tuple[int, int, bool, int, int]:
    """There on the first leg and then the second, back on the second and then the first; the end of all comes last.

    A leg begins and ends at programs. Ports tell the connections apart that did not get the request.
    """
    there = seen.packet is Packet.REQUEST
    first = seen.leg is Leg.OWN
    way = (0 if first else 2) if there else (3 if not first else 4)
    if seen.leg is Leg.TRIED:
        way = 1
    elif seen.packet is Packet.CLOSE:
        way = 5
    port = 0
    if seen.leg is Leg.TRIED:
        port = seen.source_port if there else seen.destination_port
    at_stack = 0 if seen.device != STACK else -1 if seen.direction is Direction.OUT else 1
    return way, port, not there and seen.leg is Leg.TRIED, at_stack, seen.at


def _came_up(flow: Flow, seen: Observation, seen_at_all: Sequence[Observation]) -> int:
    """When a program got a packet: behind all devices, whose taps may read the clock later than its own.

    A packet sent again comes in once more; what the taps saw of that belongs to the next sighting.
    """
    if seen.device != STACK or seen.direction is Direction.OUT:
        return seen.at
    again = min((each.at for each in flow.departures if each.at > seen.at), default=None)
    before = (
        each.at
        for each in seen_at_all
        if each.packet is seen.packet and each.device != STACK and (again is None or each.at < again)
    )
    return max(seen.at, max(before, default=0))


def _not_before(seen: Observation, got: int) -> int:
    return got if seen.device == STACK and seen.direction is Direction.OUT and seen.packet is not Packet.REQUEST else 0


def stops(flow: Flow) -> tuple[Stop, ...]:
    """The stops of a flow, in the order of time."""
    found: list[Stop] = []
    for seen in _grouped(flow):
        last = found[-1].seen[-1] if found else None
        relayed = last is not None and _is_relayed(last, seen[0])
        found.append(Stop(seen, relayed or (last is not None and _goes_on(last, seen[0])), relayed))
    return tuple(found)


def last_destination(flow: Flow) -> str:
    """Where a tap last saw the request go, translated if it was: a kernel may send it again, and rules drop that."""
    requests = [stop for stop in stops(flow) if stop.packet is Packet.REQUEST]
    translated = [stop for stop in requests if stop.went.destination != requests[0].came.destination]
    return (translated or requests)[-1].went.destination if requests else ""


def _grouped(flow: Flow) -> Iterator[tuple[Observation, ...]]:
    """Successive sightings in one node, pod or host. The same tap twice shows the same packet sent twice."""
    together: list[Observation] = []
    for seen in hops(flow):
        if together and (
            (seen.netns_name, seen.packet, seen.leg) != (together[-1].netns_name, together[-1].packet, together[-1].leg)
            or (together[-1].direction is Direction.OUT and seen.direction is Direction.IN)
            or any((each.device, each.direction) == (seen.device, seen.direction) for each in together)
        ):
            yield tuple(together)
            together = []
        together.append(seen)
    if together:
        yield tuple(together)


def _goes_on(last: Observation, first: Observation) -> bool:
    """Whether the packet last seen at one stop can be the one first seen at the next.

    No link lies between a node and the pods in its namespace: incoming packets go up to their stack, and outgoing ones
    leave by the node's devices.
    """
    if last.packet is not first.packet or last.leg is not first.leg:
        return False
    if first.device == STACK and first.direction is Direction.IN:
        return True
    if last.device == STACK and last.direction is Direction.OUT:
        return True
    return last.direction is Direction.OUT and first.direction is Direction.IN


def _is_relayed(last: Observation, first: Observation) -> bool:
    """Whether a program got one packet, and then sent the other as its own."""
    got = last.device == STACK and last.direction is Direction.IN
    sent = first.device == STACK and first.direction is Direction.OUT
    return (
        got
        and sent
        and (last.netns_name, last.packet) == (first.netns_name, first.packet)
        and last.leg is not first.leg
    )


def _ends(seen: Observation) -> Ends:
    return Ends(endpoint(seen.source, seen.source_port), endpoint(seen.destination, seen.destination_port))


def way(flow: Flow, packet: Packet = Packet.REQUEST) -> tuple[Stop, ...]:
    """The stops of a request from the sender to its first pod or its last sighting, or of a reply from pod to sender.

    It leads back from the end: a stop where a copy ended is not on it. Empty if the taps missed a hop.
    """
    begins, ends = (flow.departures, flow.arrivals) if packet is Packet.REQUEST else (flow.answers, flow.replies)
    there = [stop for stop in stops(flow) if stop.packet is packet and stop.leg is not Leg.TRIED]
    end = next((at for at, stop in enumerate(there) if stop.seen[-1] in ends), len(there) - 1)
    found = there[end : end + 1]
    for stop in reversed(there[: max(end, 0)]):
        if found[0].seen[0] in begins:
            break
        if _leads_to(stop, found[0]):
            found.insert(0, stop)
    return tuple(found) if found and found[0].seen[0] in begins else ()


def _leads_to(stop: Stop, following: Stop) -> bool:
    """Whether the packet went from one stop to the other: between a node's devices and its programs stand its rules.

    A stop that sends copies has several sightings on the way out, and a copy may be the last of them. Two by one device
    are two stops; so are the way in and the way out, if the taps saw a copy elsewhere in between.
    """
    first = following.seen[0]
    if following.relayed or _is_relayed(stop.seen[-1], first):
        return True
    goes_out = stop.netns_name == first.netns_name and first.direction is Direction.OUT
    return goes_out or any(
        _goes_on(seen, first) and (STACK in (seen.device, first.device) or _ends(seen) == following.came)
        for seen in stop.seen
    )


def last_seen(flow: Flow) -> Observation | None:
    """The last observation of a request; of observations at one time the last recorded.

    A frame that a bridge flooded to another machine shows no step of the way.
    """
    seen = (*flow.departures, *flow.passages, *flow.relays, *flow.strays, *flow.arrivals)
    requests = [each for each in seen if each.packet is Packet.REQUEST and not each.otherhost]
    requests.sort(key=lambda each: each.at)
    return requests[-1] if requests else None


def last_reply(flow: Flow) -> Observation | None:
    """The last observation of an answer, also as it came in under another device's MAC: the stack there drops it."""
    replies = (each for each in hops(flow) if each.packet is Packet.REPLY)
    return max(replies, key=lambda each: each.at, default=None)


def ended_in(flows: Iterable[Flow]) -> frozenset[str]:
    """Where requests were seen last: the namespaces that they came into, or whose programs sent them.

    The result is empty where one of them was seen last as it left: it ended in no namespace that the taps know.
    """
    last = [last_seen(flow) for flow in flows]
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
    found, whole = list[Translation](), [stop for stop in way(flow) if stop.leg is Leg.OWN]
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
