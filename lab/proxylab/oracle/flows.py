"""``Oracle``: what must become of a new flow.

A packet walks from machine to machine as routing has it. The rules of every node that it meets may translate it once;
what a node has translated may meet the rules of another one. Where routing spreads flows over several nodes, or a
Service has several endpoints, the packet takes every way, each with its share of the flows.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import TrafficPolicy
from proxylab.oracle.answers import FlowAnswer, FlowQuestion, HealthAnswer, ReachedEndpoint, SeenSource
from proxylab.oracle.choice import Choice, choose
from proxylab.oracle.frontends import Meeting, meet
from proxylab.oracle.health import health_check, node_health
from proxylab.oracle.masquerade import HAIRPIN, is_exempt_pod, masquerading
from proxylab.oracle.moment import Moment, ServedPort
from proxylab.oracle.ways import Ways
from proxylab.plan.device_names import ROUTER
from proxylab.plan.forwarding import UnreachableError
from proxylab.plan.model import Role
from proxylab.plan.resolved import PolicyRoute
from proxylab.scenario.words import Frontend, IcmpError, Outcome, Reply

MOST_STEPS: Final = 16
"""More machines than any way through a lab has; a longer way is a loop."""


_BESIDE_EACH_OTHER: Final = frozenset({Mode.IPTABLES, Mode.NFTABLES})


class OutsideReachError(LookupError):
    """No row decides what must happen; the message says why."""


class _Translation(Struct, frozen=True):
    """A node that translated a packet, and the source that the packet had before."""

    node: str
    source: IPAddress


class _Packet(Struct, frozen=True, kw_only=True):
    """The first packet of a flow on its way, and the rows that led it so far."""

    sender: str
    source: IPAddress
    destination: IPAddress
    port: int
    protocol: Transport
    path: str = ""
    share: float = 1.0
    is_masqueraded: bool = False
    translated_by: tuple[_Translation, ...] = ()
    sticky: int | None = None
    outcome_rows: tuple[str, ...] = ()
    endpoint_rows: tuple[str, ...] = ()
    source_rows: tuple[str, ...] = ()


class _End(Struct, frozen=True, kw_only=True):
    """One end of a flow's ways."""

    outcomes: tuple[Outcome, ...]
    machine: str
    packet: _Packet
    name: str = ""
    reply: Reply = Reply.TRANSLATED
    health: HealthAnswer | None = None
    rows: tuple[str, ...] = ()


class Oracle:
    """Answers for one moment of a cluster."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._ways = Ways(moment.plan)
        self._walks: dict[PolicyRoute | None, _Walk] = {}

    def answer(self, question: FlowQuestion) -> FlowAnswer:
        """What must become of a new flow."""
        route = question.policy_route
        if route not in self._walks:
            self._walks[route] = _Walk(self._moment, self._ways.with_route(route))
        try:
            ends = tuple(self._walks[route].ends(question))
        except OutsideReachError as error:
            return FlowAnswer(outside=str(error))
        return _merged(ends, self._moment)


class _FromNode(Struct, frozen=True, kw_only=True):
    """What decides how a packet goes on that one node has translated; Services share endpoints, and so these."""

    sender: str
    source: IPAddress
    protocol: Transport
    path: str
    was_masqueraded: bool
    node: str
    hides: bool
    is_own: bool
    endpoint: IPAddress
    port: int


class _Walk:
    """The ways of flows through one network."""

    def __init__(self, moment: Moment, ways: Ways) -> None:
        self._moment = moment
        self._ways = ways
        self._known: dict[_FromNode, tuple[_End, ...]] = {}
        self._of_both_modes = ("modes-beside-each-other",) if moment.modes >= _BESIDE_EACH_OTHER else ()

    def ends(self, question: FlowQuestion) -> Iterator[_End]:
        packet = _Packet(
            sender=question.sender,
            source=question.source,
            destination=question.destination,
            port=question.port,
            protocol=question.protocol,
            path=question.path,
        )
        if question.destination in self._moment.balanced and question.policy_route is None:
            packet = replace(packet, outcome_rows=("balancer-leaves-out-nodes",))
        is_from_outside = self._moment.machines[question.sender].role is Role.HOST and question.policy_route is None
        if is_from_outside and any(question.destination in each for each in self._moment.narrowed):
            packet = replace(packet, outcome_rows=(*packet.outcome_rows, "balancer-leaves-out-excluded"))
        if question.frame_mac:
            step = self._ways.by_frame(question.sender, question.destination, question.frame_mac)
            if step is None:
                raise OutsideReachError("no machine on the sender's link has that MAC address")
            return self._arrive(packet, step.machine, step.device, MOST_STEPS)
        if self._moment.is_node(question.sender):
            return self._arrive(packet, question.sender, None, MOST_STEPS)
        return self._leave(packet, question.sender, MOST_STEPS)

    def _arrive(self, packet: _Packet, machine: str, device: str | None, steps: int) -> Iterator[_End]:
        """The packet is in a machine, which it reached by ``device``, or from which it comes."""
        if not steps:
            raise OutsideReachError(f"routing leads packets for {packet.destination} round in a circle")
        if packet.destination.is_loopback and device is not None:
            yield _End(outcomes=(Outcome.DROPPED,), machine=machine, packet=packet, rows=("loopback-from-a-link",))
            return
        if self._is_filtered(packet, machine, device):
            yield _End(outcomes=(Outcome.DROPPED,), machine=machine, packet=packet, rows=("strict-reverse-path",))
            return
        if machine == ROUTER and self._moment.plan.dialler(packet.destination) is not None:
            yield from self._dial(packet, steps)
            return
        if self._moment.is_node(machine) and all(each.node != machine for each in packet.translated_by):
            meeting = meet(self._moment, machine, packet.destination, packet.port, packet.protocol)
            if meeting.undecided or meeting.rows:
                self._require_decided(machine, meeting.undecided)
            packet = replace(packet, outcome_rows=(*packet.outcome_rows, *meeting.rows, *self._of_both_modes))
            if meeting.host_port is not None:
                yield from self._lead_to_pod(packet, meeting, machine, device, steps)
                return
            if meeting.served is not None:
                yield from self._translate(packet, meeting.served, machine, device, steps)
                return
            if meeting.outcome is not None:
                yield _End(outcomes=(meeting.outcome,), machine=machine, packet=packet)
                return
        yield from self._go_on(packet, machine, steps)

    def _dial(self, packet: _Packet, steps: int) -> Iterator[_End]:
        """The packet is at the router, whose load balancer translates its destination to the node port of a node."""
        served = packet.protocol.served
        found = None if served is None else self._moment.dialled_at(packet.destination, packet.port, served)
        if found is None or not found.nodes:
            raise OutsideReachError("the load balancer dials no node port for it")
        for own in found.nodes.values():
            onward = replace(
                packet,
                destination=own,
                port=found.node_port,
                share=packet.share / len(found.nodes),
                translated_by=(*packet.translated_by, _Translation(ROUTER, packet.source)),
            )
            (step,) = self._ways.steps(ROUTER, own)
            if found.hides_client:
                source = self._ways.masquerade_source(ROUTER, step.out, own)
                onward = replace(onward, source=source, is_masqueraded=True)
            yield from self._arrive(onward, step.machine, step.device, steps - 1)

    def _require_decided(self, node: str, undecided: str = "") -> None:
        """Refuse to answer where the rows do not decide what the node's proxy does with a packet."""
        if why := self._moment.setting_of(node).undecided or undecided:
            raise OutsideReachError(why)

    def _is_filtered(self, packet: _Packet, machine: str, device: str | None) -> bool:
        """Whether the kernel drops the packet, since its way back would be another one (rp_filter)."""
        if device is None or packet.source.version == 6 or not self._moment.has_strict_reverse_path(machine, device):
            return False
        if self._moment.machines[machine].rules:
            raise OutsideReachError(f"{machine} has policy routes and a strict rp_filter")
        return self._ways.device_to(machine, packet.source) != device

    def _go_on(self, packet: _Packet, machine: str, steps: int) -> Iterator[_End]:
        """No Service's rule holds the packet in this machine."""
        if self._moment.has(machine, packet.destination):
            yield self._deliver(packet, machine)
            return
        is_dialled = self._moment.plan.dialler(packet.destination) is not None
        if self._moment.is_node(machine) and not self._moment.owners(packet.destination) and not is_dialled:
            if packet.translated_by:
                raise OutsideReachError(f"no machine of the network has the endpoint {packet.destination}")
            alone = self._moment.left_alone(packet.destination)
            rows = (alone,) if alone else () if packet.outcome_rows else ("no-frontend",)
            yield _End(outcomes=(Outcome.UNTRANSLATED,), machine=machine, packet=packet, rows=rows)
            return
        yield from self._leave(packet, machine, steps)

    def _leave(self, packet: _Packet, machine: str, steps: int) -> Iterator[_End]:
        """The packet leaves a machine for the next one."""
        if self._moment.has(machine, packet.destination):
            yield self._deliver(packet, machine)
            return
        try:
            found = self._ways.steps(machine, packet.destination)
        except UnreachableError as error:
            raise OutsideReachError(str(error)) from None
        for step in found:
            onward = replace(packet, share=packet.share / len(found))
            onward = self._as_the_network_has_it(onward, machine, step.out)
            yield from self._arrive(onward, step.machine, step.device, steps - 1)

    def _as_the_network_has_it(self, packet: _Packet, machine: str, out: str) -> _Packet:
        """The packet as it leaves the machine, whose CNI plugin may masquerade what pods send out of the cluster."""
        for rule in self._moment.machines[machine].masquerades:
            from_pod = any(packet.source in network for network in rule.sources)
            if from_pod and not any(packet.destination in network for network in rule.spared):
                source = self._ways.masquerade_source(machine, out, packet.destination)
                rows = (*packet.source_rows, "masquerade-of-the-network")
                return replace(packet, source=source, is_masqueraded=True, source_rows=rows)
        return packet

    def _translate(
        self, packet: _Packet, served: ServedPort, node: str, device: str | None, steps: int
    ) -> Iterator[_End]:
        """A node leads the packet to the endpoints of a Service's port."""
        choice = self._choice(packet, served, node, device)
        if choice.undecided:
            raise OutsideReachError(choice.undecided)
        admitted = self._by_ranges(packet, served, node)
        if admitted:
            packet = replace(packet, outcome_rows=(*packet.outcome_rows, admitted))
        if admitted == "out-of-range":
            is_open = not choice.chosen and not choice.is_elsewhere
            outcomes = (Outcome.REJECTED, Outcome.DROPPED) if is_open else (Outcome.DROPPED,)
            rows = ("ranges-without-endpoints",) if is_open else ()
            yield _End(outcomes=outcomes, machine=node, packet=packet, rows=rows)
            return
        if not choice.chosen:
            yield self._without_endpoint(packet, served, choice, node, device)
            return
        of_others = masquerading(self._moment, served, node, device, packet.source)
        for candidate in choice.chosen:
            onward = replace(
                packet,
                destination=candidate.address,
                port=candidate.port,
                share=packet.share / len(choice.chosen),
                translated_by=(*packet.translated_by, _Translation(node, packet.source)),
                sticky=served.service.affinity_timeout if packet.sticky is None else packet.sticky,
                endpoint_rows=(*packet.endpoint_rows, *choice.rows),
            )
            hidden = HAIRPIN if candidate.address == packet.source else of_others
            onward = replace(onward, source_rows=(*packet.source_rows, *hidden.rows))
            if packet.translated_by:
                yield from self._to_endpoint(onward, node, steps, hides=hidden.happens, is_own=device is None)
            else:
                yield from self._once_translated(onward, node, steps, hides=hidden.happens, is_own=device is None)

    def _lead_to_pod(
        self, packet: _Packet, meeting: Meeting, node: str, device: str | None, steps: int
    ) -> Iterator[_End]:
        """The network plugin of a node leads the packet to the pod that has the host port."""
        led, served = meeting.host_port, meeting.served
        if led is None:
            return
        marked = None if served is None else masquerading(self._moment, served, node, device, packet.source)
        of_node = packet.source.is_loopback and packet.source.version == 4
        hides = of_node or packet.source in led.subnet
        why: tuple[str, ...] = ("masquerade-own-network-at-host-port" if hides else "preserve-others-at-host-port",)
        if marked is not None and marked.happens and not hides:
            hides, why = True, marked.rows
        onward = replace(
            packet,
            destination=led.address,
            port=led.pod_port,
            translated_by=(*packet.translated_by, _Translation(node, packet.source)),
            source_rows=(*packet.source_rows, *why),
        )
        yield from self._to_endpoint(onward, node, steps, hides=hides, is_own=device is None)

    def _once_translated(self, packet: _Packet, node: str, steps: int, *, hides: bool, is_own: bool) -> Iterator[_End]:
        """The ends of a packet that one node has translated, looked up by what decides them."""
        key = _FromNode(
            sender=packet.sender,
            source=packet.source,
            protocol=packet.protocol,
            path=packet.path,
            was_masqueraded=packet.is_masqueraded,
            node=node,
            hides=hides,
            is_own=is_own,
            endpoint=packet.destination,
            port=packet.port,
        )
        known = self._known.get(key)
        if known is None:
            bare = replace(packet, share=1.0, sticky=None, outcome_rows=(), endpoint_rows=(), source_rows=())
            known = self._known[key] = tuple(self._to_endpoint(bare, node, steps, hides=hides, is_own=is_own))
        for end in known:
            after = replace(
                end.packet,
                share=packet.share * end.packet.share,
                sticky=end.packet.sticky if packet.sticky is None else packet.sticky,
                outcome_rows=packet.outcome_rows + end.packet.outcome_rows,
                endpoint_rows=packet.endpoint_rows + end.packet.endpoint_rows,
                source_rows=packet.source_rows + end.packet.source_rows,
            )
            yield replace(end, packet=after)

    def _to_endpoint(self, packet: _Packet, node: str, steps: int, *, hides: bool, is_own: bool) -> Iterator[_End]:
        """The packet that ``node`` has translated goes to its endpoint, and is masqueraded if it ``hides`` the sender.

        It ``is_own`` if a program of the node sends it.
        """
        endpoint = packet.destination
        if self._moment.has(node, endpoint):
            if hides and is_own:
                source = self._ways.masquerade_source(node, "lo", endpoint)
                packet = replace(packet, source=source, is_masqueraded=True)
            elif hides:
                packet = replace(packet, source_rows=(*packet.source_rows, "no-masquerade-within-the-node"))
            yield self._deliver(packet, node)
            return
        if not self._moment.owners(endpoint):
            raise OutsideReachError(f"no machine of the network has the endpoint {endpoint}")
        if self._moment.has(packet.sender, endpoint) and not self._ways.can_come_back(packet.sender):
            raise OutsideReachError("the pod dials itself, and its port of the bridge has no hairpin mode")
        try:
            found = self._ways.steps(node, endpoint)
        except UnreachableError as error:
            raise OutsideReachError(str(error)) from None
        for step in found:
            onward = replace(packet, share=packet.share / len(found))
            if hides:
                source = self._ways.masquerade_source(node, step.out, endpoint)
                onward = replace(onward, source=source, is_masqueraded=True)
            else:
                onward = self._as_the_network_has_it(onward, node, step.out)
            yield from self._arrive(onward, step.machine, step.device, steps - 1)

    def _choice(self, packet: _Packet, served: ServedPort, node: str, device: str | None) -> Choice:
        service, family = served.service, Family.of(packet.destination)
        policy = service.external_traffic_policy if served.is_external else service.internal_traffic_policy
        is_local, why = policy is TrafficPolicy.LOCAL, ""
        if is_local and served.is_external:
            if is_exempt_pod(self._moment, node, device, packet.source):
                is_local, why = False, "pod-is-exempt-from-local"
            elif device is None:
                is_local, why = False, "node-is-exempt-from-local"
        choice = choose(
            service,
            self._moment.candidates(served, family),
            self._moment.setting_of(node),
            node=node,
            zone=self._moment.zone_of(node),
            is_local=is_local,
        )
        return replace(choice, rows=(why, *choice.rows)) if why else choice

    def _by_ranges(self, packet: _Packet, served: ServedPort, node: str) -> str:
        """The row by which ``loadBalancerSourceRanges`` admit the sender, or refuse it; empty where none hold."""
        if served.via is not Frontend.LOAD_BALANCER_IP or not served.service.source_ranges:
            return ""
        ranges = [each for each in served.service.source_ranges if each.version == packet.destination.version]
        if not ranges:
            return "ranges-of-the-other-family"
        if any(packet.source in network for network in ranges):
            return "in-range"
        own = self._moment.primary_address(node, Family.of(packet.destination))
        is_own = packet.source == packet.destination and self._moment.has(node, packet.source)
        if is_own and own is not None and any(own in network for network in ranges):
            return "own-address-in-range"
        return "out-of-range"

    def _without_endpoint(
        self, packet: _Packet, served: ServedPort, choice: Choice, node: str, device: str | None
    ) -> _End:
        """The node has no endpoint for the packet."""
        if choice.is_elsewhere:
            row = "external-local-elsewhere" if served.is_external else "internal-local-elsewhere"
            outcome = Outcome.DROPPED
        else:
            row, outcome = "no-endpoint", Outcome.REJECTED
            if device is None and served.is_external and not self._moment.has(node, packet.destination):
                difference = self._moment.setting_of(node).row("no-endpoint-from-the-node")
                if difference is None:
                    raise OutsideReachError("no row says what a node without endpoint does with its own packets")
                row = difference.id
                outcome = Outcome.UNTRANSLATED if difference.then == "untranslated" else Outcome.REJECTED
        packet = replace(packet, endpoint_rows=(*packet.endpoint_rows, *choice.rows))
        return _End(outcomes=(outcome,), machine=node, packet=packet, rows=(row,))

    def _deliver(self, packet: _Packet, machine: str) -> _End:
        """The packet is where it goes: a program takes it, or the stack of the machine refuses it."""
        moment, address = self._moment, packet.destination
        name = moment.name_at(machine, address)
        protocol = packet.protocol.served
        if machine in moment.gone:
            raise OutsideReachError(f"{name} is deleted")
        if moment.passes_on(machine):
            raise OutsideReachError("a pod passes packets on by rules of its own")
        if protocol is None:
            rows = ("echo-is-answered",)
            return _End(outcomes=(Outcome.DELIVERED,), machine=machine, packet=packet, name=name, rows=rows)
        listener = moment.listener(machine, address, packet.port, protocol)
        if listener is not None:
            reply = Reply.NONE if listener.silent else self._reply(packet, machine)
            return _End(outcomes=(Outcome.DELIVERED,), machine=machine, packet=packet, name=listener.name, reply=reply)
        if moment.is_node(machine) and packet.protocol is Transport.TCP:
            check = health_check(moment, machine, address, packet.port)
            check = check or node_health(moment, machine, address, packet.port, packet.path)
            if check is not None:
                self._require_decided(machine)
                return _End(
                    outcomes=(Outcome.DELIVERED,),
                    machine=machine,
                    packet=packet,
                    name=machine,
                    health=check.answer,
                    rows=check.rows,
                )
        return _End(outcomes=(Outcome.REFUSED,), machine=machine, packet=packet, rows=("nothing-listens",))

    def _reply(self, packet: _Packet, machine: str) -> Reply:
        """Whether the answer passes every node that translated the packet, so that each translates it back."""
        family, home = Family.of(packet.destination), packet.source
        for each in reversed(packet.translated_by):
            bridges = self._moment.filters_bridges(each.node, family)
            try:
                passes = self._ways.lead_through(machine, home, each.node, bridges_count=bridges)
            except UnreachableError as error:
                raise OutsideReachError(f"the answer has no way back: {error}") from None
            if passes is None:
                raise OutsideReachError(f"only some of the ways back lead through {each.node}, which translated")
            if not passes:
                return Reply.NODE_PORT if each.node == ROUTER else Reply.UNTRANSLATED
            machine, home = each.node, each.source
        return Reply.TRANSLATED


def _merged(ends: Iterable[_End], moment: Moment) -> FlowAnswer:
    """The answer of all ways together."""
    outcomes: dict[Outcome, None] = {}
    at: dict[str, None] = {}
    reached: dict[tuple[IPAddress, int, str], ReachedEndpoint] = {}
    rows: dict[str, dict[str, None]] = {"outcome": {}, "endpoints": {}, "source": {}, "reply": {}, "affinity": {}}
    sticky, health = None, None
    choosing: dict[str, None] = {}
    for end in ends:
        outcomes |= dict.fromkeys(end.outcomes)
        packet = end.packet
        rows["outcome"] |= dict.fromkeys((*packet.outcome_rows, *end.rows))
        rows["endpoints"] |= dict.fromkeys(packet.endpoint_rows)
        if end.reply in (Reply.UNTRANSLATED, Reply.NODE_PORT):
            rows["reply"]["answer-past-the-node"] = None
        if Outcome.DELIVERED not in end.outcomes:
            at[end.machine] = None
            continue
        rows["source"] |= dict.fromkeys(packet.source_rows or ("preserve-untranslated",))
        choosing |= dict.fromkeys(each.node for each in packet.translated_by)
        key = packet.destination, packet.port, end.name
        seen, share = SeenSource(packet.source, packet.is_masqueraded), packet.share
        known = reached.get(key)
        sources = (seen,) if known is None else tuple(dict.fromkeys((*known.sources, seen)))
        reached[key] = ReachedEndpoint(
            address=packet.destination,
            port=packet.port,
            name=end.name,
            share=share + (known.share if known else 0),
            sources=sources,
            reply=end.reply,
        )
        sticky, health = (packet.sticky if sticky is None else sticky), (health or end.health)
    if sticky is not None:
        rows["affinity"]["affinity-by-client"] = None
    elif len(reached) > 1:
        shares = (moment.setting_of(node).row("shares") for node in choosing)
        rows["endpoints"] |= dict.fromkeys(row.id for row in shares if row is not None)
    return FlowAnswer(
        outcomes=tuple(outcomes),
        reached=tuple(reached.values()),
        at=tuple(at),
        icmp=IcmpError.PORT_UNREACHABLE if Outcome.REJECTED in outcomes else None,
        sticky=sticky,
        is_scheduled=len(reached) > 1 and not all(moment.setting_of(node).takes_turns for node in choosing),
        health=health,
        rows={part: tuple(found) for part, found in rows.items() if found},
    )
