"""One flow (``Flow``): what the taps saw of it, in order, and what became of it (``Fate``), without any expectation.

A stop is one packet in one node, pod or host, from its first sighting there to its last. Where a flow ended, and what
each node changed, follow from the stops.

A program between two legs stands between two stops in its node: the request goes up to it on the first leg and leaves
it on the second, and the reply comes back in the other order. So the hops follow the legs, not the clock: the program
accepts the first leg before it opens the second.

A fate rests on the taps alone; what links with netem did, ``on_links`` adds. It is exact on purpose: a packet that
arrived *and* was rejected is neither delivered nor rejected, and a copy is not a delivery. A packet that reached a
pod's device under another pod's address has not arrived, since the pod's stack drops it; if the packet arrived as well,
it is a copy. A frame under another device's MAC is neither: a bridge that has not learned the MAC floods it, and the
stack behind the device drops it.

``flows_of`` sorts observations into flows, by the taps that saw them and the addresses that they had there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import ConnectReport, Direction, Evidence, Leg, Observation, Packet, TrackedFlow
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK, Receiver, ResolvedProbe
from proxylab.verdict.icmp_errors import rejecting_error


class Fate(StrEnum):
    """What became of one flow, as reports word it."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    REFUSED = "refused"
    LOST = "lost"
    LOST_ON_LINK = "lost on a link"
    UNSENT = "not sent"
    MULTIPLIED = "delivered more than once"
    COPIED = "delivered, and copied"
    UNREACHABLE = "answered by ICMP"
    STRAYED = "strayed"
    CLOSED = "accepted, then closed"
    UNEXPLAINED = "answered without reaching a pod"
    CONTRADICTORY = "contradictory"


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


class Flow(Struct, frozen=True, dict=True):
    """Every observation of one flow, each field in the order of the record; what follows is worked out once.

    Attributes:
        number: of the flow.
        departures: requests leaving the sender for the address dialled.
        arrivals: requests coming in at a pod under that pod's own address.
        passages: observations at devices of nodes, and of pods that pass packets on.
        strays: requests coming in elsewhere than at a node, or at a pod but addressed to another address.
        flooded: requests and replies coming in at a pod or host under another device's MAC.
        answers: replies leaving the pods.
        answers_from_wrong_address: replies leaving pods and hosts under an address that is not a receiver's.
        replies: replies coming in at the sender.
        stray_replies: replies coming in at another pod or host.
        resets: TCP resets coming in at the sender.
        unreachables: ICMP port unreachable coming in at the sender, quoting the request.
        errors: other ICMP errors coming in at the sender, quoting the request.
        advice: ICMP messages coming in there that do not end a flow: packet too big, a redirect.
        refusals: resets and ICMP errors leaving a pod or host.
        closings: ends of the accepted connection coming in at the sender.
        relays: packets that a program between two legs gets or sends, at its node's own stack.
        tries: packets of a program's connections to endpoints that did not get the request.
        reports: what the kernel's sockets reported; more than one casts doubt on the evidence.
        tracked: its entries in the nodes' connection tracking.
        unsendable: whether the sender's kernel refused to send it.
        reached: the pods at which it arrived, each once.
    """

    number: int
    departures: tuple[Observation, ...] = ()
    arrivals: tuple[Observation, ...] = ()
    passages: tuple[Observation, ...] = ()
    strays: tuple[Observation, ...] = ()
    flooded: tuple[Observation, ...] = ()
    answers: tuple[Observation, ...] = ()
    answers_from_wrong_address: tuple[Observation, ...] = ()
    replies: tuple[Observation, ...] = ()
    stray_replies: tuple[Observation, ...] = ()
    resets: tuple[Observation, ...] = ()
    unreachables: tuple[Observation, ...] = ()
    errors: tuple[Observation, ...] = ()
    advice: tuple[Observation, ...] = ()
    refusals: tuple[Observation, ...] = ()
    closings: tuple[Observation, ...] = ()
    relays: tuple[Observation, ...] = ()
    tries: tuple[Observation, ...] = ()
    reports: tuple[ConnectReport, ...] = ()
    tracked: tuple[TrackedFlow, ...] = ()
    unsendable: bool = False
    reached: tuple[str, ...] = ()

    @property
    def report(self) -> ConnectReport | None:
        """What the kernel's socket reported."""
        return self.reports[0] if self.reports else None

    @cached_property
    def rejections(self) -> tuple[Observation, ...]:
        """The ICMP errors at the sender with which rules reject packets."""
        return (*self.unreachables, *(each for each in self.errors if rejecting_error(each) is not None))

    @cached_property
    def rejected_by(self) -> Observation | None:
        """The ICMP error that rejected it, by whatever code; ``None`` if it reached a pod, or heard anything else."""
        only = len(self.rejections) == len(self.unreachables) + len(self.errors)
        turned_away = self.fate in (Fate.REJECTED, Fate.UNREACHABLE) and not self.arrivals
        return next(iter(self.rejections), None) if only and turned_away else None

    @property
    def taken(self) -> Observation | None:
        """The request as a program of a node got it from the sender; ``None`` where no program did."""
        got = (each for each in self.relays if each.packet is Packet.REQUEST and each.leg is Leg.OWN)
        return next((each for each in got if each.direction is Direction.IN), None)

    @property
    def relayed(self) -> Observation | None:
        """The request as a program sent it on; ``None`` where no program did."""
        return next(iter(self._relayings), None)

    @property
    def sendings(self) -> int:
        """How often the request left for the pod: from the sender, or from a program between two legs."""
        return len(self._relayings or self.departures)

    @property
    def _relayings(self) -> list[Observation]:
        return [each for each in self.relays if each.packet is Packet.REQUEST and each.direction is Direction.OUT]

    @property
    def unended(self) -> str:
        """Why its connection did not end in order after the answer; empty if it did, and for other flows."""
        return self.report.unended if self.report is not None else ""

    @cached_property
    def fate(self) -> Fate:
        """What became of the flow, by the taps."""
        turned_away = bool(self.resets) + bool(self.unreachables) + bool(self.errors)
        if turned_away > 1 or (turned_away and self.replies):
            return Fate.CONTRADICTORY
        return self._fate_at_a_pod() if self.arrivals else self._fate_elsewhere()

    def _fate_at_a_pod(self) -> Fate:
        if len(self.reached) > 1 or len(self.arrivals) > max(1, self.sendings):
            return Fate.MULTIPLIED
        if self.strays:
            return Fate.COPIED
        if self.resets:
            return Fate.REFUSED
        if self.unreachables or self.errors:
            return Fate.UNREACHABLE
        return Fate.DELIVERED

    def _fate_elsewhere(self) -> Fate:
        found = (
            (self.resets, Fate.REFUSED),
            (self.errors, Fate.UNREACHABLE),
            (self.replies and self.closings, Fate.CLOSED),
            (self.replies, Fate.UNEXPLAINED),
            (self.strays, Fate.STRAYED),
            (self.unreachables, Fate.REJECTED),
            (self.unsendable, Fate.UNSENT),
        )
        return next((fate for seen, fate in found if seen), Fate.LOST)

    @cached_property
    def hops(self) -> tuple[Observation, ...]:
        """Every observation, in the order of time.

        The kernel gives no time in OUTPUT, so a program's reply carries the time of the run's beginning. It sorts
        behind the request that the program got. The same holds for what a program between two legs sends: it opens its
        leg.
        """
        kinds = (
            self.departures,
            self.passages,
            self.strays,
            self.flooded,
            self.arrivals,
            self.answers,
            self.answers_from_wrong_address,
            self.replies,
            self.stray_replies,
            self.resets,
            self.unreachables,
            self.errors,
            self.relays,
            self.tries,
            () if self.arrivals else self.closings,
        )
        seen_at_all = [each for kind in kinds for each in kind]
        if self.relays or self.tries:
            return tuple(sorted(seen_at_all, key=_in_order_of_legs))
        got = max((_came_up(self, arrival, seen_at_all) for arrival in self.arrivals), default=0)
        return tuple(
            sorted(seen_at_all, key=lambda seen: max(_came_up(self, seen, seen_at_all), _not_before(seen, got)))
        )

    @cached_property
    def stops(self) -> tuple[Stop, ...]:
        """Its stops, in the order of time."""
        found: list[Stop] = []
        for seen in _grouped(self):
            last = found[-1].seen[-1] if found else None
            relayed = last is not None and _is_relayed(last, seen[0])
            found.append(Stop(seen, relayed or (last is not None and _goes_on(last, seen[0])), relayed))
        return tuple(found)

    @cached_property
    def way(self) -> tuple[Stop, ...]:
        """The stops of the request from the sender to its first pod or its last sighting; empty if a hop is missing.

        It leads back from the end: a stop where a copy ended is not on it.
        """
        return _way(self, Packet.REQUEST, self.departures, self.arrivals)

    @cached_property
    def way_back(self) -> tuple[Stop, ...]:
        """The stops of the reply from the pod to the sender or its last sighting; empty if a hop is missing."""
        return _way(self, Packet.REPLY, self.answers, self.replies)

    @cached_property
    def last_seen(self) -> Observation | None:
        """The last observation of the request; of observations at one time the last recorded.

        A frame that a bridge flooded to another machine shows no step of the way.
        """
        seen = (*self.departures, *self.passages, *self.relays, *self.strays, *self.arrivals)
        requests = [each for each in seen if each.packet is Packet.REQUEST and not each.otherhost]
        requests.sort(key=lambda each: each.at)
        return requests[-1] if requests else None

    @cached_property
    def last_reply(self) -> Observation | None:
        """The last observation of an answer; also of one under another device's MAC, which the stack there drops."""
        replies = (each for each in self.hops if each.packet is Packet.REPLY)
        return max(replies, key=lambda each: each.at, default=None)


def _in_order_of_legs(seen: Observation) -> tuple[int, ...]:
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


def _grouped(flow: Flow) -> Iterator[tuple[Observation, ...]]:
    """Successive sightings in one node, pod or host. The same tap twice shows the same packet sent twice."""
    together: list[Observation] = []
    for seen in flow.hops:
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


def _way(flow: Flow, packet: Packet, begins: Sequence[Observation], ends: Sequence[Observation]) -> tuple[Stop, ...]:
    there = [stop for stop in flow.stops if stop.packet is packet and stop.leg is not Leg.TRIED]
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


_PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
"""(type, code) by IP version: RFC 792 and RFC 4443, section 3.1."""

_ADVICE_TYPES = {4: frozenset({5}), 6: frozenset({2, 137})}
"""ICMP types that advise the sender and do not end a flow: redirects (RFC 792; RFC 4861, section 4.5), and in IPv6
packet too big (RFC 4443, section 3.2)."""

_FRAGMENTATION_NEEDED = (3, 4)
"""IPv4's packet too big: RFC 1191."""


def flows_of(resolved: ResolvedProbe, evidence: Evidence) -> tuple[Flow, ...]:
    """All flows of the probe, in order, without observations of no flow (``case`` doubts such evidence)."""
    sorter = _Sorter(resolved, frozenset(evidence.terminating))
    seen: dict[str, dict[int, list[Any]]] = {name: {} for name in Flow.__struct_fields__}
    for observation in evidence.observations:
        kind, named = sorter.sort(observation)
        if kind:
            seen[kind].setdefault(observation.flow, []).append(named)
    for report in evidence.connects:
        seen["reports"].setdefault(report.flow, []).append(report)
    for entry in evidence.tracked or ():
        seen["tracked"].setdefault(entry.flow, []).append(entry)
    columns: dict[str, Sequence[Any]] = {kind: _column(by_flow, resolved.flows) for kind, by_flow in seen.items()}
    columns["number"] = range(resolved.flows)
    columns["unsendable"] = [bool(evidence.refused_sends) and not departures for departures in columns["departures"]]
    columns["reached"] = [tuple({arrival.netns_name: None for arrival in arrivals}) for arrivals in columns["arrivals"]]
    return tuple(map(Flow, *columns.values()))


def _column(by_flow: Mapping[int, list[Any]], flows: int) -> Sequence[tuple[Any, ...]]:
    """The values of one field, flow by flow."""
    if not by_flow:
        return [()] * flows
    return [tuple(by_flow.get(number, ())) for number in range(flows)]


def end_counts(ends: Sequence[tuple[IPAddress, int]]) -> Counter[tuple[IPAddress, int]]:
    """How often each address and port occurs, in the order of first occurrence.

    The function counts objects first and then merges equal ones: hashing an address costs more than the rest of a flow.
    """
    by_identity = {(id(address), port): (address, port) for address, port in ends}
    found = Counter[tuple[IPAddress, int]]()
    for identity, count in Counter([(id(address), port) for address, port in ends]).items():
        found[by_identity[identity]] += count
    return found


class _Sorter:
    """Finds the field of ``Flow`` that an observation belongs to."""

    def __init__(self, resolved: ResolvedProbe, terminating: frozenset[str] = frozenset()) -> None:
        self._resolved = resolved
        self._terminating = terminating
        self._sender = frozenset({resolved.sender.name, resolved.sender.namespace})
        self._passed = frozenset((*resolved.nodes, *resolved.forwarders))
        self._device = resolved.sender.device
        # Replicas may share a namespace: namespace and address together identify a pod, and the port as well a node's
        # program. Comparing addresses is faster than hashing them, for every packet of tens of thousands of flows.
        receivers: defaultdict[tuple[str, str], dict[Receiver, None]] = defaultdict(dict)
        for each in resolved.receivers:
            receivers[each.name, each.device][each] = receivers[each.namespace, each.device][each] = None
        self._receivers = {where: tuple(there) for where, there in receivers.items()}
        self._known: dict[tuple[object, ...], tuple[str, str]] = {}

    def sort(self, observation: Observation) -> tuple[str, Observation]:
        """The name of its field, and the observation with the pod's name in place of its namespace.

        The tap and the receiver's address and port decide about a request or a reply, and thousands of flows share
        them. The key holds an address by identity, since its hash costs more than the rest; the evidence keeps the
        object alive, and two equal objects only cost a second decision.
        """
        packet = observation.packet
        if observation.leg is Leg.TRIED:
            return "tries", observation
        if packet is Packet.REQUEST:
            end = (id(observation.destination), observation.destination_port)
        elif packet is Packet.REPLY:
            end = (id(observation.source), observation.source_port)
        else:
            return self._kind(observation), observation
        if self._is_at_program(observation):
            return "relays", observation
        incoming = observation.direction is Direction.IN
        about = (incoming, observation.otherhost, packet is Packet.REQUEST)
        key = (observation.netns_name, observation.device, observation.leg, *about, *end)
        known = self._known.get(key)
        if known is None:
            kind = self._kind(observation)
            known = self._known[key] = kind, self._named(observation, kind)
        kind, name = known
        return kind, observation if name == observation.netns_name else replace(observation, netns_name=name)

    def _kind(self, observation: Observation) -> str:
        """The field's name; empty for an observation without meaning for the fate."""
        if observation.netns_name in self._passed and observation.device != STACK:
            return "passages"
        if observation.otherhost:
            return "flooded"
        if observation.packet is Packet.REQUEST:
            return self._request(observation)
        if observation.direction is Direction.IN:
            if observation.leg is Leg.OWN and self._at_sender(observation):
                return self._heard(observation)
            return "stray_replies" if self._is_reply_off_nodes(observation) else ""
        if observation.packet is not Packet.REPLY:
            return "" if observation.device == STACK or observation.packet is Packet.CLOSE else "refusals"
        if self._receiver(observation, observation.source, observation.source_port):
            return "answers"
        return "answers_from_wrong_address" if self._is_reply_off_nodes(observation) else ""

    def _is_at_program(self, seen: Observation) -> bool:
        """Whether a program that is neither the sender nor a receiver gets or sends the packet."""
        if seen.device != STACK or seen.netns_name not in self._terminating:
            return False
        incoming = seen.direction is Direction.IN
        if seen.packet is Packet.REQUEST:
            ends_there = self._receiver(seen, seen.destination, seen.destination_port)
            return not ends_there if incoming else seen.leg is Leg.ONWARD
        if seen.packet is not Packet.REPLY:
            return False
        if incoming:
            return seen.leg is Leg.ONWARD
        return not self._receiver(seen, seen.source, seen.source_port)

    @staticmethod
    def _is_reply_off_nodes(observation: Observation) -> bool:
        return observation.packet is Packet.REPLY and observation.device != STACK

    def _named(self, observation: Observation, kind: str) -> str:
        """The pod's name where that differs from its namespace's, else the namespace's."""
        if kind == "arrivals":
            return self._receiver(observation, observation.destination, observation.destination_port)
        if kind == "answers":
            return self._receiver(observation, observation.source, observation.source_port)
        return observation.netns_name

    def _at_sender(self, observation: Observation) -> bool:
        return observation.device == self._device and observation.netns_name in self._sender

    def _receiver(self, seen: Observation, address: IPAddress, port: int) -> str:
        """The receiver with this address and port where the tap saw the packet; empty if there is none."""
        for receiver in self._receivers.get((seen.netns_name, seen.device), ()):
            if receiver.address == address and (not receiver.ports or port in receiver.ports):
                return receiver.name
        return ""

    def _request(self, request: Observation) -> str:
        resolved = self._resolved
        if request.direction is Direction.IN:
            if self._receiver(request, request.destination, request.destination_port):
                return "arrivals"
            return "" if request.device == STACK else "strays"
        dialled = request.destination_port == resolved.port and request.destination == resolved.destination
        return "departures" if dialled and self._at_sender(request) else ""

    @staticmethod
    def _heard(heard: Observation) -> str:
        version = heard.source.version
        if heard.packet is Packet.REPLY:
            return "replies"
        if heard.packet is Packet.CLOSE:
            return "closings"
        if heard.packet is Packet.RESET:
            return "resets"
        if heard.packet is Packet.PORT_UNREACHABLE and heard.icmp == _PORT_UNREACHABLE[version]:
            return "unreachables"
        return "advice" if _is_advice(heard) else "errors"


def _is_advice(error: Observation) -> bool:
    if error.icmp is None:
        return False
    version = error.source.version
    return error.icmp[0] in _ADVICE_TYPES[version] or (version == 4 and error.icmp == _FRAGMENTATION_NEEDED)
