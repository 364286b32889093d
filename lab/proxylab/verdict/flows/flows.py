"""Observations sorted by flow (``Flow``), and what became of each flow (``Fate``), without any expectation.

A fate rests on the taps alone; what links with netem did, ``on_links`` adds. It is exact on purpose: a packet that
arrived *and* was rejected is neither delivered nor rejected, and a copy is not a delivery. A packet that reached a
pod's device under another pod's address has not arrived, since the pod's stack drops it; if the packet arrived as well,
it is a copy. A frame under another device's MAC is neither: a bridge that has not learned the MAC floods it, and the
stack behind the device drops it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import ConnectReport, Direction, Evidence, Leg, Observation, Packet, TrackedFlow
from proxylab.plan.resolved import STACK, Receiver, ResolvedProbe
from proxylab.verdict.icmp_errors import rejecting_error

_PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
"""(type, code) by IP version: RFC 792 and RFC 4443, section 3.1."""

_ADVICE_TYPES = {4: frozenset({5}), 6: frozenset({2, 137})}
"""ICMP types that advise the sender and do not end a flow: redirects (RFC 792; RFC 4861, section 4.5), and in IPv6
packet too big (RFC 4443, section 3.2)."""

_FRAGMENTATION_NEEDED = (3, 4)
"""IPv4's packet too big: RFC 1191."""


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


class Flow(Struct, frozen=True):
    """Every observation of one flow, each field in the order of the record.

    Attributes:
        number: of the flow.
        departures: requests leaving the sender for the address dialled.
        arrivals: requests coming in at a pod under that pod's own address.
        passages: observations at devices of nodes.
        strays: requests coming in elsewhere than at a node, or at a pod but addressed to another address.
        flooded: requests and replies coming in at a pod or host under another device's MAC.
        answers: replies leaving the pods.
        answers_from_wrong_address: replies leaving pods and hosts under an address that is not a receiver's.
        replies: replies coming in at the sender.
        stray_replies: replies coming in at another pod or host.
        resets: TCP resets coming in at the sender.
        unreachables: ICMP port unreachable coming in at the sender, quoting the request.
        errors: other ICMP errors coming in at the sender, quoting the request.
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

    @property
    def rejections(self) -> tuple[Observation, ...]:
        """What the sender heard of ICMP errors that rules send to reject a packet."""
        return (*self.unreachables, *(each for each in self.errors if rejecting_error(each) is not None))

    @property
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

    @property
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


def counted_ends(ends: Sequence[tuple[IPAddress, int]]) -> Counter[tuple[IPAddress, int]]:
    """How often each address and port occurs, in the order of first occurrence.

    The function counts objects first and then merges equal ones: hashing an address costs more than the rest of a flow.
    """
    by_identity = {(id(address), port): (address, port) for address, port in ends}
    counted = Counter[tuple[IPAddress, int]]()
    for identity, count in Counter([(id(address), port) for address, port in ends]).items():
        counted[by_identity[identity]] += count
    return counted


class _Sorter:
    """Finds the field of ``Flow`` that an observation belongs to."""

    def __init__(self, resolved: ResolvedProbe, terminating: frozenset[str] = frozenset()) -> None:
        self._resolved = resolved
        self._terminating = terminating
        self._sender = frozenset({resolved.sender.name, resolved.sender.namespace})
        self._nodes = frozenset(resolved.nodes)
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
        if observation.netns_name in self._nodes and observation.device != STACK:
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
        return "" if _is_advice(heard) else "errors"


def _is_advice(error: Observation) -> bool:
    if error.icmp is None:
        return False
    version = error.source.version
    return error.icmp[0] in _ADVICE_TYPES[version] or (version == 4 and error.icmp == _FRAGMENTATION_NEEDED)
