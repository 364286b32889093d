"""Observations sorted into flows, by the taps that saw them and the addresses that they had there."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Evidence, Leg, Observation, Packet
from proxylab.plan.resolved import STACK, Receiver, ResolvedProbe
from proxylab.verdict.flows.flows import Flow

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
