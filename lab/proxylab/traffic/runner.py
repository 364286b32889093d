"""Runs one probe from its first packet to its evidence.

A run reads the rule counters, discards what the taps saw before, and then takes turns: send some packets, let the
responders answer, read the taps. It ends when every flow is settled: arrived and answered, or turned away by a reset or
an ICMP error. If nothing moves any more and some flow is not settled, it sends sentinel packets (``sentinels`` says why
a packet that has not arrived before them never will). Once they are back and still nothing has moved, the run is over.
A run never waits for a fixed time.

Probes that are sent together run one after another, and what rules counted is read once for all of them.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, Transport
from proxylab.errors import InternalError
from proxylab.evidence.evidence import Capture, Direction, Evidence, EvidenceTogether, Packet, RuleCount, TraceStep
from proxylab.evidence.segments import DialogueRecord
from proxylab.kernel.netfilter.meters import Meter
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.connections import TcpConnection, end_these
from proxylab.kernel.netlink.conntrack import flush
from proxylab.kernel.netlink.netem import NetemLinks
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.added_pod import Added, AddedPod, with_added
from proxylab.plan.dialogue import Dialogue
from proxylab.plan.model import Listener, Plan, Role
from proxylab.plan.name_servers import own_addresses
from proxylab.plan.resolved import STACK, PolicyRoute, ResolvedProbe
from proxylab.scenario.probes import MOST_CONCURRENCY
from proxylab.scenario.words import Manner
from proxylab.timing import Deadline, together
from proxylab.traffic.associations import Associations
from proxylab.traffic.client_memory import ClientMemory
from proxylab.traffic.connect import Dialogues, has_sctp, need_sctp
from proxylab.traffic.conntrack_reader import ConntrackReader
from proxylab.traffic.craft import first_packets
from proxylab.traffic.dialogue import Conversation
from proxylab.traffic.exchange import Exchange, Sending
from proxylab.traffic.foreign import ForeignInSteps, ForeignRules
from proxylab.traffic.http import Fetches, by_connection
from proxylab.traffic.identity import TOKEN_BYTES, Identity, IdentityRegistry, nonce_of
from proxylab.traffic.match import Matcher
from proxylab.traffic.packet import Dispatch
from proxylab.traffic.ports import PortAllocator, side_of
from proxylab.traffic.programs import Passage, Programs
from proxylab.traffic.responder import Responders
from proxylab.traffic.stack_counts import Stacks
from proxylab.traffic.streams import Streams
from proxylab.traffic.tracing import Tracing, with_virtual_servers
from proxylab.traffic.watch import Watch

_RUN_SECONDS: Final = 10.0
_FLOW_SECONDS: Final = 0.005
_ROUND_TRIP_SECONDS: Final = 0.05
"""For each flow where none begins before another has ended: a whole connection, also in a guest."""
# Ethernet, IP and transport header with options: the bytes of a frame beyond its token and payload.
_HEADER_BYTES: Final = 14 + 40 + 40


class Runner:
    """The traffic of one lab: its taps, its responders, and one probe at a time."""

    def __init__(
        self,
        netns_by_name: Mapping[str, NetNs],
        plan: Plan,
        watch: Watch,
        responders: Responders,
        meters: Mapping[tuple[str, Family], Meter],
        seed: int = 0,
        served: Iterable[int] = (),
        links: NetemLinks | None = None,
        packet_lock: asyncio.Lock | None = None,
        foreign: Mapping[str, ForeignRules] | None = None,
        programs: Programs | None = None,
        trusted: str = "",
    ) -> None:
        """Make a runner.

        Args:
            netns_by_name: every namespace of the plan.
            plan: of the lab.
            watch: open taps at its pods and outside hosts, which outlive the runner.
            responders: open responders at its listeners, which outlive it, too.
            meters: of the nodes' rules for each family; closed with the runner.
            seed: orders source ports, and is part of every token.
            served: ports on which something else listens in the nodes; no flow leaves from one.
            links: the links of the plan that have netem; without them it has none.
            packet_lock: each run holds it, and so does every other sender of packets in the lab.
            foreign: of each node, its rules that no meter counts; closed with the runner.
            programs: the proxies' own processes, through which flows may pass.
            trusted: the certificates that requests over TLS accept, in PEM.
        """
        self._netns_by_name, self._plan = dict(netns_by_name), plan
        self._meters, self._foreign = meters, foreign or {}
        self.foreign_in_steps = ForeignInSteps(self._foreign)
        self._programs, self._trusted = programs or Programs(), trusted
        taken = {*served, *(each.port for namespace in plan.namespaces for each in namespace.listeners)}
        self._ports = PortAllocator(seed, taken)
        self._identities = IdentityRegistry(nonce_of(seed))
        self.packet_lock = packet_lock or asyncio.Lock()
        self._links = links or NetemLinks(Wiring(plan, netns_by_name, {}))
        self._watch, self._responders = watch, responders
        self._added: dict[str, Added] = {}
        self._tracing: Tracing | None = None
        netns_by_name = self._netns_by_name  # to which pods are added
        self.conntrack = ConntrackReader(netns_by_name, own_addresses(plan))
        self._associations: Associations | None = None
        self._clients = ClientMemory()
        self._stacks = Stacks(netns_by_name, {each.name for each in plan.namespaces if each.role is Role.NODE})
        self._seen: Matcher | None = None
        self._dialogues = self.traced = self._foreign_read_at = 0
        taps = watch, responders, self._identities, self.conntrack
        self.streams = Streams(netns_by_name, *taps, self._port_of_stream, self._programs, self._links)

    async def add_pod(self, pod: Added, netns: NetNs) -> None:
        """Take up a pod that has come after the plan, once no probe runs: its servers, its taps, what traces name.

        ``netns`` is where it listens.

        Raises:
            PortsTakenError: another program listens on its ports.
            InternalError: the kernel refuses a socket.
        """
        name = pod.placement.name
        async with self.packet_lock:
            with ExitStack() as undone:
                undone.callback(self._responders.remove, name)
                self._responders.add(netns, pod.pod)
                if isinstance(pod, AddedPod):
                    self._watch.add(pod.link, self._netns_by_name[pod.node.name], netns)
                    self._netns_by_name[name] = netns
                undone.pop_all()
            self._added[name] = pod
            self._forget_devices()
            self._spare_ports(pod)

    async def serve(self, pod: Added, further: Sequence[Listener]) -> None:
        """Let such a pod listen on further ports. Raises what ``add_pod`` raises."""
        name = pod.placement.name
        async with self.packet_lock:
            if name in self._added:  # else it has gone meanwhile
                self._responders.add(self._netns_by_name[pod.pod.name], replace(pod.pod, listeners=tuple(further)))
                listeners = (*self._added[name].pod.listeners, *further)
                self._added[name] = replace(pod, pod=replace(pod.pod, listeners=listeners))
                self._forget_devices()
                self._spare_ports(self._added[name])

    async def remove_pod(self, name: str) -> None:
        """Let such a pod go, once no probe runs."""
        async with self.packet_lock:
            pod = self._added.pop(name)
            self._responders.remove(name)
            if isinstance(pod, AddedPod):
                self._watch.remove(pod.link)
                self.conntrack.forget(name)
                del self._netns_by_name[name]
            self._forget_devices()

    def take_up_plan(self, plan: Plan) -> None:
        """Go on with a plan in which nodes have other addresses."""
        self._plan = plan
        self._forget_devices()

    @property
    def plan(self) -> Plan:
        """The plan of the lab as it is now, with the pods that were added."""
        return with_added(self._plan, self._added.values())

    def _forget_devices(self) -> None:
        """Let traces, and the responders of SCTP, begin anew with the devices that there are now."""
        self._stop_tracing()
        if self._associations is not None:
            self._associations.close()
            self._associations = None

    def _spare_ports(self, pod: Added) -> None:
        """Let no flow leave the pod from a port on which it listens."""
        for listener in pod.pod.listeners:
            for family in dict.fromkeys(Family.of(each.interface.ip) for each in pod.pod.addresses):
                self._ports.claim((pod.pod.name, family), Transport(listener.protocol), listener.port)

    def hang_up(self, names: Collection[str]) -> None:
        """Close the connections of pods, as their programs do when they end."""
        self._responders.hang_up(names)

    def close(self) -> None:
        """Close the streams and meters. Does not block the event loop that calls it."""
        self.streams.close()
        for meter in self._meters.values():
            meter.close()
        for rules in self._foreign.values():
            rules.close()
        self.conntrack.close()
        if self._associations is not None:
            self._associations.close()
            self._associations = None
        self._stacks.close()
        self._stop_tracing()
        self._seen = None

    def _stop_tracing(self) -> None:
        if self._tracing is not None:
            self._tracing.close()
            self._tracing = None

    def forget(self) -> None:
        """Flush conntrack in every namespace, after which source ports may be used again.

        Raises:
            CapabilityError: the kernel does not allow it.
        """
        for netns in self._netns_by_name.values():
            flush(netns)
        self._ports.restart()
        for pod in self._added.values():
            self._spare_ports(pod)

    def continue_flows(self) -> None:
        """After a change in the lab, let datagrams from author-chosen ports continue their earlier flows."""
        self._ports.continue_flows()

    def capture(self) -> Capture:
        """The frames of the last run."""
        return Capture() if self._seen is None else Capture(self._seen.frames, self._seen.left_out)

    async def run(self, resolved: ResolvedProbe, *, trace: bool = False) -> Evidence:
        """Send a probe and gather the evidence. Runs wait for each other.

        With ``trace``, the probe has one flow, which is followed through the rules of every node. Where a proxy ends
        connections, it opens one; elsewhere it is a crafted packet.

        Raises:
            InternalError: for a probe that no plan should have produced (a sender without a tap, a protocol that the
                runner does not send).
            CapabilityError: the kernel cannot trace, or cannot flush conntrack when source ports are used up.
        """
        if trace and resolved.flows != 1:
            raise InternalError(f"probe {resolved.name!r}: only a probe of one flow can be traced")
        async with self.packet_lock:
            self.traced += trace
            self._seen = None  # two runs of 24,000 flows would take 190 MB more than one
            meters = self._meters_on(resolved.nodes, Family.of(resolved.destination))
            await together(meter.begin(resolved) for meter in meters.values())
            evidence = await self._run(resolved, meters, self._foreign_on(resolved.nodes), trace=trace)
            counts = await _ended(meters)
            steps = with_virtual_servers(evidence.steps, counts)
            evidence = replace(evidence, counts=counts, metered_nodes=_metered(meters), steps=steps)
            return self._noted(resolved, evidence)

    async def run_together(
        self, probes: Sequence[ResolvedProbe], take_route: Callable[[PolicyRoute | None], None]
    ) -> EvidenceTogether:
        """Send probes of one family one after another, between two readings of the rule counters.

        To read the rules of all nodes takes longer than a few flows. Where there are no foreign rules, these are looked
        for once, too. ``take_route`` is called before each probe. Runs wait for each other.

        Raises:
            CapabilityError: the kernel cannot flush conntrack when source ports are used up.
        """
        nodes, family = (
            dict.fromkeys(chain.from_iterable(each.nodes for each in probes)),
            Family.of(probes[0].destination),
        )
        meters, foreign = self._meters_on(nodes, family), self._foreign_on(nodes)
        async with self.packet_lock:
            self._seen = None
            await together(meter.begin(probes[0]) for meter in meters.values())
            await together(rules.begin(family) for rules in foreign)
            some = [] if all(rules.found_none for rules in foreign) else foreign
            found: list[Evidence] = []
            for resolved in probes:
                take_route(resolved.policy_route)
                found.append(await self._run(resolved, meters, some))
            counts, metered = await _ended(meters), _metered(meters)
            whole = (replace(evidence, metered_nodes=metered) for evidence in found)
            return EvidenceTogether(each=tuple(map(self._noted, probes, whole)), counts=counts)

    def _noted(self, resolved: ResolvedProbe, evidence: Evidence) -> Evidence:
        """The evidence of a run, whose connections end and whose clients are noted."""
        _end_connections_of(resolved, evidence, self.plan, self._netns_by_name)
        return self._clients.note(resolved, evidence)

    def _meters_on(self, nodes: Iterable[str], family: Family) -> Mapping[str, Meter]:
        return {node: self._meters[node, family] for node in nodes}

    def _foreign_on(self, nodes: Iterable[str]) -> Sequence[ForeignRules]:
        return [self._foreign[node] for node in nodes if node in self._foreign]

    async def converse(self, dialogue: Dialogue) -> DialogueRecord:
        """Hold a dialogue by crafted segments. Runs wait for each other.

        Raises:
            InternalError: a side of it has no tap.
            CapabilityError: the kernel has no nf_tables.
        """
        resolved = dialogue.there
        meters = self._meters_on(resolved.nodes, Family.of(resolved.destination))
        async with self.packet_lock:
            await together(meter.begin(resolved) for meter in meters.values())
            (port,) = self._source_ports(resolved)
            self._dialogues += 1
            conversation = Conversation(
                dialogue,
                identity=self._identities.issue(1),
                serial=self._dialogues,
                port=port,
                netns_by_name=self._netns_by_name,
                plan=self.plan,
                watch=self._watch,
                responders=self._responders,
            )
            spoken = await conversation.hold()
            counts = await _ended(meters)
        uncounted = tuple(node for node, meter in meters.items() if not meter.is_complete)
        return replace(spoken, counts=counts, uncounted=uncounted)

    async def _run(
        self,
        resolved: ResolvedProbe,
        meters: Mapping[str, Meter],
        foreign: Sequence[ForeignRules],
        *,
        trace: bool = False,
    ) -> Evidence:
        """Send a probe while meters count. The evidence has all but what these have counted."""
        started, family = time.monotonic(), Family.of(resolved.destination)
        identity = self._identities.issue(resolved.flows)
        ports = self._source_ports(resolved)
        passage = self._programs.on_the_way(resolved)
        turns = self._prepare(resolved, identity, ports, passage)
        with ExitStack() as untaken:
            untaken.callback(turns.close)
            tracing = self._armed(resolved, identity, ports[0] if passage.nodes else 0) if trace else None
            await passage.begin()
            await together(rules.begin(family) for rules in foreign)
            self._stacks.begin((*resolved.nodes, *resolved.watched))
            known, dropped = self.conntrack.flows(resolved, ports if resolved.sender.port else ()), self._links.read()
            untaken.pop_all()
        unfinished = await self._take(turns, resolved, every_segment=bool(passage.nodes or resolved.request))
        losses = turns.take_losses()
        tracked = self.conntrack.flows(resolved, ports)
        entries = self.conntrack.entries(resolved, tracked, ports)
        steps = () if tracing is None else _steps(tracing, identity, meters)
        foreign_rules = await together(rules.end() for rules in foreign)
        observations, behind = by_connection(turns.matcher.observations, resolved)
        return Evidence(
            sent=turns.sending.sent,
            observations=observations,
            behind=behind,
            connects=tuple(sorted(turns.sending.reports, key=attrgetter("flow"))),
            foreign=(*chain.from_iterable(foreign_rules), *self._stacks.holding),
            sentinels=turns.sentinels.reports(),
            unpinned=turns.unpinned,
            losses=losses,
            refused_sends=tuple(turns.sending.refused),
            tracked=tracked,
            entries=entries,
            known=known,
            terminating=passage.nodes,
            undrained=passage.undrained,
            discarded=passage.discarded(),
            kernel=self._stacks.end(),
            links=self._links.since(dropped),
            altered=(*turns.matcher.altered, *turns.sending.altered),
            counters_read_at=self._stacks.counters_read_at,
            foreign_read_at=self._foreign_read_at if self._stacks.counters_read_at else 0,
            http=tuple(turns.sending.answers) if isinstance(turns.sending, Fetches) else (),
            steps=steps,
            drops=() if tracing is None else tracing.drops_until(self._stacks.counters_read_at),
            unfinished=unfinished,
            seconds=time.monotonic() - started,
        )

    async def _take(self, turns: Exchange, resolved: ResolvedProbe, *, every_segment: bool) -> str:
        follows_data = every_segment and resolved.protocol is Transport.TCP
        of_flow = max(_FLOW_SECONDS, _ROUND_TRIP_SECONDS / (resolved.concurrency or MOST_CONCURRENCY))
        deadline = Deadline.after(self._links.longer(_RUN_SECONDS + of_flow * resolved.flows))
        try:
            with self._watch.every_segment() if follows_data else nullcontext():
                unfinished = await turns.run(deadline)
        except BaseException:
            self._stop_tracing()  # later runs must not pay for it
            raise
        finally:
            turns.close()
        self._seen = turns.matcher
        return unfinished

    def _armed(self, resolved: ResolvedProbe, identity: Identity, port: int) -> Tracing:
        """The lab's tracing, opened on first use: most runs never need it."""
        if self._tracing is None:
            self._tracing = Tracing(self._netns_by_name, self.plan, resolved.nodes)
        self._tracing.arm(resolved, identity, port)
        return self._tracing

    def _prepare(self, resolved: ResolvedProbe, identity: Identity, ports: Sequence[int], passage: Passage) -> Exchange:
        if resolved.protocol is Transport.SCTP and resolved.manner is Manner.CONNECT:
            need_sctp(f"probe {resolved.name!r}", ", or let the probe send single packets (send: {as: packet})")
        sender = resolved.sender
        tap = self._watch.tap(sender.namespace, sender.device)
        self._watch.follow(True)
        stacks = {each.namespace for each in resolved.receivers if each.device == STACK}
        for node in sorted(stacks.union(passage.nodes)):
            self._watch.tap(node, STACK)
        of_meters = filter(None, (meter.max_frames_in_flight for meter in self._meters.values()))
        room = min([self._watch.room(_HEADER_BYTES + TOKEN_BYTES + resolved.payload), *of_meters])
        associations = self._sctp_responders() if resolved.protocol is Transport.SCTP else None
        sending: Sending
        if resolved.manner is Manner.PACKET:
            sending = Dispatch(tap, first_packets(resolved, identity, ports), room, sender.mtu)
        elif resolved.http:
            sending = Fetches(self._netns_by_name[sender.namespace], resolved, identity, ports, self._trusted)
        else:
            sending = Dialogues(self._netns_by_name[sender.namespace], resolved, identity, ports, room)
        by_sockets = resolved.manner is not Manner.PACKET
        return Exchange(
            resolved=resolved,
            identity=identity,
            tap=tap,
            sending=sending,
            sockets={port: flow for flow, port in enumerate(ports)} if by_sockets else None,
            watch=self._watch,
            responders=self._responders,
            associations=associations,
            before_sentinels=partial(self._read_counters_again, resolved),
            passage=passage,
            ports=ports,
            links=self._links,
        )

    async def _read_counters_again(self, resolved: ResolvedProbe) -> None:
        """Read the counters now: what comes later is not the run's. A second call does nothing."""
        is_first = not self._stacks.counters_read_at
        self._stacks.read_again()
        await together(self._foreign[node].read_again() for node in resolved.nodes if node in self._foreign)
        self._foreign_read_at = time.time_ns() if is_first else self._foreign_read_at

    def _sctp_responders(self) -> Associations | None:
        """The SCTP responders for a kernel without SCTP, opened when SCTP is first sent."""
        if self._associations is None and not has_sctp():
            self._associations = Associations(self._netns_by_name, self.plan)
        return self._associations

    def _port_of_stream(self, resolved: ResolvedProbe) -> int:
        """The source port of a stream. An author-chosen port continues whatever conntrack has for it."""
        port = resolved.sender.port
        if port is not None:
            self._ports.claim(side_of(resolved), resolved.protocol, port)
            return port
        (port,) = self._source_ports(resolved)
        return port

    def _source_ports(self, resolved: ResolvedProbe) -> tuple[int, ...]:
        """A port for each flow that has no flow in conntrack; conntrack is flushed if too few are left."""
        sender, port, protocol = side_of(resolved), resolved.sender.port, resolved.protocol
        if port is not None:
            if not self._ports.claim(sender, protocol, port):
                self.forget()
                self._ports.claim(sender, protocol, port)
            return (port,) * resolved.flows
        if resolved.flows > self._ports.size:
            raise InternalError(
                f"probe {resolved.name!r}: {resolved.flows} flows need as many source ports, "
                f"and there are {self._ports.size}"
            )
        ports = self._ports.deal(sender, protocol, resolved.flows)
        if ports is None:
            self.forget()
            ports = self._ports.deal(sender, protocol, resolved.flows)
        return ports or ()


def _steps(tracing: Tracing, identity: Identity, meters: Mapping[str, Meter]) -> tuple[TraceStep, ...]:
    """The traced packet's way, with the rules as the meters know them."""
    return tracing.finish(identity, {node: meter.rules_by_chain() for node, meter in meters.items()})


async def _ended(meters: Mapping[str, Meter]) -> tuple[RuleCount, ...]:
    return tuple(chain.from_iterable(await together(meter.end() for meter in meters.values())))


def _metered(meters: Mapping[str, Meter]) -> tuple[str, ...]:
    return tuple(node for node, meter in meters.items() if meter.is_complete)


def _end_connections_of(
    resolved: ResolvedProbe, evidence: Evidence, plan: Plan, netns_by_name: Mapping[str, NetNs]
) -> None:
    """End the connections that requests of the run may have opened where they arrived, if answers did not come back.

    A pod's kernel sends an unanswered SYN-ACK or unacknowledged data again for a minute and more. Its packets would
    count in the rules and at the taps of later runs, and its socket would keep the pod's namespace when the lab closes.
    Where every flow of a run was settled, nothing is left, and the lab sent no sentinel packet.
    """
    if resolved.protocol is not Transport.TCP or not evidence.sentinels:
        return
    opened = defaultdict[str, set[TcpConnection]](set)
    for seen in evidence.observations:
        if seen.packet is Packet.REQUEST and seen.direction is Direction.IN and seen.netns_name in netns_by_name:
            own, peer = (seen.destination, seen.destination_port), (seen.source, seen.source_port)
            opened[seen.netns_name].add(TcpConnection(own, peer))
    for namespace in plan.namespaces:
        if here := [each for each in opened[namespace.name] if namespace.has(each.own[0])]:
            end_these(netns_by_name[namespace.name], here)
