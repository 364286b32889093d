"""``Case``: one probe before its judge, with every fact that its verdicts, their causes and all reports rest on.

Each fact is worked out once, when it is asked for first. A later one rests on earlier ones, in the order of the class:
observations, flows, stops (of each flow), fates, rules, doubts. The case knows no particular expectation.

Kernel sockets are a second witness of their flows, and connection tracking is another. Where one contradicts the taps
about the path of a flow, that flow is in doubt, unless the taps captured it at every hop: then the packets decide, and
a translation that another node added is wrong (``second_nat``).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Protocol
from proxylab.evidence.evidence import Discarded, Evidence, ForeignRule, Observation, Packet, RuleCount, TableEntry
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.plan.resolved import MasqueradedAs, ResolvedProbe
from proxylab.scenario.expect import (
    Expect,
    Masqueraded,
    NodeDevice,
    Preserved,
    Shares,
    SourceAddress,
    SourceByBackend,
    SourceExpectation,
)
from proxylab.scenario.probes import AddressTarget, Probe, ServiceTarget, Target
from proxylab.scenario.steps import StreamExpect
from proxylab.scenario.words import Manner, Outcome, Position
from proxylab.verdict.conntrack_tables import ConntrackTables
from proxylab.verdict.counted_rules import DIALLED_PORT, NFT_TABLE, CountedRule, ending, may_be_engines, read_all
from proxylab.verdict.doubts import (
    answers_ended,
    came_too_late,
    conntrack_contradiction,
    disagreement,
    doubts_about,
    dropped_by_rules,
    packets_of,
    packets_until,
    reasons_it_may_be_late,
)
from proxylab.verdict.drops import KernelDrop, kernel_drop
from proxylab.verdict.flows import Fate, Flow, flows_of
from proxylab.verdict.hops import (
    SecondNat,
    copied_on_link,
    copies,
    ended_in,
    is_at,
    lost_copies,
    lost_on_links,
    second_nat,
)
from proxylab.verdict.icmp_errors import icmp_words

End = tuple[IPAddress, int]

_ARRIVED = frozenset({Fate.DELIVERED, Fate.MULTIPLIED, Fate.COPIED})

_OF_TAPS = ("flows", "fates", "ended_in", "packets", "packets_counted")
"""Facts of a case that no rule changes."""


class ExpectedEnds:
    """The addresses and ports at which the flows of a probe may arrive, or the packets of a stream.

    These are the reachable endpoints, and the ends that the author allows. An author may name a backend that is no
    reachable endpoint: conntrack or a proxy that has stopped may still lead there. At such a pod each endpoint of the
    Service is right; where the Service has none there any more, each address and port is. An author may also dial a
    node's own address and expect the node's daemon there, at the node port of a Service without endpoints: no mode
    serves node ports at every address. For a Service with endpoints, the plan says at which addresses nothing need
    serve them (``or_dialled``).

    Attributes:
        reachable: the ends themselves, without those of pods that the author names.
        is_known: whether a Service, an endpoint or the author limits the ends; else each end is right.
    """

    def __init__(
        self, resolved: ResolvedProbe, reachable: Sequence[End], named: Iterable[str], *, is_known: bool
    ) -> None:
        """``named`` are the pods that the author names."""
        self.reachable = reachable
        self.is_known = is_known
        self._resolved = resolved
        self._reachable = frozenset(reachable)
        self._of_named = self._own_endpoints(resolved, named)

    @classmethod
    def of_probe(cls, resolved: ResolvedProbe, expect: Expect, target: Target) -> "ExpectedEnds":
        """Where the flows of a probe may arrive at its one moment."""
        reachable = [(each.address, each.port) for each in resolved.endpoints if each.is_reachable]
        dialled = (resolved.destination, resolved.port)
        names_address = isinstance(target, AddressTarget) and expect.outcome is Outcome.DELIVERED
        if resolved.or_dialled or (not reachable and names_address and not expect.backend_names):
            reachable.append(dialled)
        is_known = bool(resolved.service_port or resolved.endpoints)
        return cls(resolved, reachable, expect.backend_names, is_known=is_known)

    @classmethod
    def of_stream(cls, resolved: ResolvedProbe, expect: StreamExpect) -> "ExpectedEnds":
        """Where the packets of a stream may arrive: at each endpoint that it has had, or where it was sent to."""
        ends = [(each.address, each.port) for each in resolved.endpoints]
        if not resolved.service_port and not ends:
            ends = [(resolved.destination, resolved.port)]
        return cls(resolved, ends, expect.backend_names, is_known=True)

    def allow(self, name: str, end: End) -> bool:
        """Whether a packet may arrive there, at the pod of that name."""
        if not self.is_known or end in self._reachable:
            return True
        own = self._of_named.get(name)
        return own is not None and (not own or end in own)

    def instead_of(self, address: IPAddress) -> Sequence[End]:
        """The ends at which a flow that came to this address may arrive: those there, or else all."""
        return [end for end in self.reachable if end[0] == address] or self.reachable

    def is_unready(self, end: End) -> bool:
        """Whether the Service has an endpoint there, and none that new flows may reach."""
        found = [each.is_reachable for each in self._resolved.endpoints if (each.address, each.port) == end]
        return bool(found) and not any(found)

    @staticmethod
    def _own_endpoints(resolved: ResolvedProbe, named: Iterable[str]) -> Mapping[str, frozenset[End]]:
        """The Service's endpoints at each pod that the author names; none for a probe of no Service."""
        if not resolved.service_port:
            return {}
        addresses = defaultdict[str, set[IPAddress]](set)
        for each in resolved.receivers:
            addresses[each.name].add(each.address)
        return {
            name: frozenset((each.address, each.port) for each in resolved.endpoints if each.address in addresses[name])
            for name in named
        }


class Case(Struct, frozen=True, dict=True):
    """One probe and its evidence.

    Attributes:
        probe: with the expectations.
        resolved: the probe, resolved.
        evidence: as recorded.
        source: the one address that ``expect.source`` stands for; ``None`` where it is the sender's or differs.
    """

    probe: Probe
    resolved: ResolvedProbe
    evidence: Evidence
    source: IPAddress | None = None

    # What the author asks.

    @property
    def expect(self) -> Expect:
        """What the author expects of the probe."""
        return self.probe.expect

    @cached_property
    def is_about_packets(self) -> bool:
        """Whether the flows must have an outcome. An ICMP error needs none, nor an HTTP answer without a Service.

        An answer of a Service shows the engine's work only if the engine's rules led the request there, or the dialled
        node answered a health check. Where proxies end connections, the lab cannot follow a request to an Ingress
        through both programs.
        """
        through_two = self.resolved.request is not None and self.evidence.terminating
        if "outcome" in self.expect.positions or (self.expect.http is None and self.expect.error is None):
            return True
        if self.expect.error is not None:
            return False
        by_service = self.resolved.service_port or isinstance(self.probe.target, ServiceTarget)
        return bool(by_service) and not through_two

    @property
    def dialled(self) -> tuple[IPAddress, int]:
        """The address and port that the probe dialled."""
        return self.resolved.destination, self.resolved.port

    @cached_property
    def expected_ends(self) -> ExpectedEnds:
        """Where its flows may arrive."""
        return ExpectedEnds.of_probe(self.resolved, self.expect, self.probe.target)

    @property
    def ends_beyond_nodes(self) -> bool:
        """Whether the author expects the drop at a pod or host."""
        return self.expect.outcome is Outcome.DROPPED and bool(self.resolved.watched)

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation; the position of ``expect`` for one that the author did not write."""
        return self.expect.positions.get(key, self.expect.position)

    # Flows.

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """Every flow of the probe, in order. A flow has its stops."""
        return flows_of(self.resolved, self.evidence)

    @property
    def size(self) -> tuple[int, str]:
        """The number of flows, and the word for one."""
        return len(self.flows), "flow"

    @cached_property
    def arrived(self) -> tuple[Flow, ...]:
        """The flows that reached one pod or more."""
        return tuple([flow for flow in self.flows if flow.arrivals])

    @cached_property
    def arrivals_by_pod(self) -> Counter[str]:
        """How many flows arrived at each pod, in the order of first arrival."""
        return Counter(netns_name for flow in self.flows for netns_name in flow.reached)

    @cached_property
    def clients(self) -> dict[IPAddress, set[str]]:
        """The pods that the flows of each sending address reached."""
        if not self.resolved.sender.others:
            return {self.resolved.sender.address: set(self.arrivals_by_pod)}
        found: dict[IPAddress, set[str]] = {}
        for flow in self.arrived:
            found.setdefault(self.resolved.sender.address_of_flow(flow.number), set()).update(flow.reached)
        return found

    @cached_property
    def expected_shares(self) -> Mapping[str, float]:
        """The share of the flows that each pod must get: as the author wrote it, or an equal one for each backend."""
        spread = self.expect.spread
        if isinstance(spread, Shares):
            return spread.of
        names = self.expect.backend_names or tuple(self.arrivals_by_pod)
        return dict.fromkeys(names, 1 / len(names)) if names else {}

    @cached_property
    def ended_in(self) -> frozenset[str]:
        """Where requests were seen last: see ``hops.ended_in``."""
        return ended_in(self.flows)

    @cached_property
    def packets(self) -> int:
        """How many packets a counter must show if its rule ended every flow: a repeated SYN is one more."""
        return packets_of(self.flows)

    @cached_property
    def packets_counted(self) -> int:
        """How many of these packets had left when the lab read the stack counters."""
        return packets_until(self.flows, self.evidence.counters_read_at)

    @property
    def came_beyond_nodes(self) -> bool:
        """Whether a flow that must end at a pod or host came in there."""
        return self.ends_beyond_nodes and any(flow.arrivals or flow.strays for flow in self.flows)

    # Fates.

    @cached_property
    def _contradicted(self) -> Mapping[int, str]:
        """How connection tracking contradicts the taps, by flow number."""
        if self.evidence.tracked is None:
            return {}
        found = ((flow.number, conntrack_contradiction(flow, self.resolved)) for flow in self.flows)
        return {number: clause for number, clause in found if clause}

    @cached_property
    def second_nats(self) -> Mapping[int, SecondNat]:
        """The flows that a second node translated too, as the captured hops show, by flow number.

        Where the lab read no entry of a flow, as of another zone, the captured hops alone show it.
        """
        found = {}
        for flow in self.flows:
            in_question = flow.number in self._contradicted or (flow.fate in _ARRIVED and not flow.tracked)
            if in_question and (second := second_nat(flow, self.resolved)) is not None:
                found[flow.number] = second
        return found

    @cached_property
    def disagreements(self) -> Mapping[int, str]:
        """Where taps contradict sockets or connection tracking, by flow number."""
        found = {number: clause for number, clause in self._contradicted.items() if number not in self.second_nats}
        if self.resolved.manner is Manner.CONNECT:
            for flow in self.flows:
                if clause := disagreement(flow, flow.fate, self.resolved.protocol):
                    found[flow.number] = clause
        return found

    @cached_property
    def lost_copies(self) -> Mapping[int, str]:
        """The copies of requests that ended at a node, by flow number."""
        return self._lost_copies(Packet.REQUEST)

    @cached_property
    def lost_reply_copies(self) -> Mapping[int, str]:
        """The copies of replies that ended at a node, by flow number."""
        return self._lost_copies(Packet.REPLY)

    def _lost_copies(self, packet: Packet) -> Mapping[int, str]:
        # A missing tap on a flow's way goes unnoticed without the plan, and what passed it looks lost. So no copies are
        # counted of a flow about which other witnesses contradict the taps.
        sound = [None if flow.number in self.disagreements else flow.fate for flow in self.flows]
        return lost_copies(self.evidence, self.resolved, self.flows, sound, packet)

    @cached_property
    def on_links(self) -> Mapping[int, str]:
        """Where netem lost the request of a flow or its answer, by flow number."""
        return lost_on_links(self.evidence, self.flows)

    @cached_property
    def fates(self) -> tuple[Fate, ...]:
        """The fate of each flow by the taps, with what nodes did to its copies, and what links with netem did."""
        return tuple([self._fate(flow) for flow in self.flows])

    def _fate(self, flow: Flow) -> Fate:
        fate = Fate.COPIED if flow.number in self.lost_copies else flow.fate
        if fate is Fate.LOST and flow.number in self.on_links:
            return Fate.LOST_ON_LINK
        if fate is Fate.MULTIPLIED and copied_on_link(self.resolved, self.evidence, flow):
            return Fate.DELIVERED
        return fate

    @property
    def flows_with_fates(self) -> Iterator[tuple[Flow, Fate]]:
        return zip(self.flows, self.fates, strict=True)

    @cached_property
    def stack_drop(self) -> KernelDrop | None:
        """The drop by a node's stack that accounts for every packet of the probe, if there is one."""
        if set(self.fates) != {Fate.LOST}:
            return None
        return kernel_drop(self.resolved, self.evidence, self.packets_counted, self.ended_in)

    @cached_property
    def too_late(self) -> Mapping[int, str]:
        """The flows to unexpected pods, of clients that the proxy may have forgotten by then, by flow number."""
        return came_too_late(self.resolved, self.evidence, self.flows, self.expect.backend_names)

    # Rules.

    @cached_property
    def is_metered(self) -> bool:
        """Whether the lab read the counters of all nodes: a rule without a count then counted nothing."""
        return set(self.resolved.nodes) <= set(self.evidence.metered_nodes)

    @cached_property
    def rules(self) -> Sequence[CountedRule]:
        """Every rule that counted and can be read."""
        return read_all(self.evidence.counts)

    @cached_property
    def translations(self) -> Sequence[CountedRule]:
        """The DNAT rules that counted."""
        return [rule for rule in self.rules if rule.target == "DNAT"]

    @cached_property
    def dropping(self) -> tuple[CountedRule, ...]:
        """The rules that drop, counted, and match what the probe dials."""
        return ending(self.resolved, self.rules, "DROP")

    @cached_property
    def rejecting(self) -> tuple[CountedRule, ...]:
        """The rules that reject, counted, and match what the probe dials."""
        return ending(self.resolved, self.rules, "REJECT")

    def ending(self, target: str) -> tuple[CountedRule, ...]:
        """Those that drop or those that reject, by their target ``DROP`` or ``REJECT``."""
        return self.dropping if target == "DROP" else self.rejecting

    @cached_property
    def masqueraded_again(self) -> CountedRule | None:
        """The engine's rule that changed more sources than there are flows; ``None`` where there is none.

        The kernel consults source NAT once for each flow, and a lab has no other traffic. A further change is that of a
        tunnel's packet, which inherits the mark of the packet inside (skb->mark); a rule should have cleared it.
        """
        changing = (rule for rule in self.rules if rule.changes_source and may_be_engines(rule.count, self.resolved))
        return next((rule for rule in changing if rule.count.packets > len(self.flows)), None)

    @cached_property
    def went_no_further(self) -> bool:
        """Whether the taps saw each flow last where the author expects its end, and no rule counted its end."""
        where = self.expect.at
        if self.expect.outcome is not Outcome.DROPPED or where is None or self.dropping:
            return False
        last = [flow.last_seen for flow in self.flows]
        return all(seen is not None and seen.netns_name in self.resolved.nodes and is_at(seen, where) for seen in last)

    @property
    def expected_entries(self) -> Sequence[TableEntry]:
        """The entries of connection tracking that the author's key ``some`` matches; none without that key."""
        return self.tables.some(self.expect.conntrack) if self.expect.conntrack is not None else ()

    @cached_property
    def tables(self) -> ConntrackTables:
        """The connection tracking after the probe."""
        resolved = self.resolved
        return ConntrackTables(self.evidence.entries, resolved.nodes, resolved.addresses, (resolved.protocol,))

    def with_rules(self, counts: Sequence[RuleCount], foreign: Sequence[ForeignRule]) -> "Case":
        """The case with these rules alone. Its flows and fates stay: they rest on taps and links, not on counters."""
        case = replace(self, evidence=replace(self.evidence, counts=tuple(counts), foreign=tuple(foreign)))
        case.__dict__.update({fact: getattr(self, fact) for fact in _OF_TAPS})
        return case

    # Programs of proxies, which end connections.

    @cached_property
    def leading_to_program(self) -> Sequence[CountedRule]:
        """The engine's rules that counted, and lead what the probe dials to a process that ends connections."""
        return [
            rule
            for rule in self.rules
            if rule.count.node in self.evidence.terminating
            and rule.target in ("REDIRECT", "DNAT")
            and may_be_engines(rule.count, self.resolved)
            and rule.matched_fields(self.resolved) >= DIALLED_PORT
        ]

    @property
    def dials_program(self) -> bool:
        """Whether the proxy's process listens at the dialled address itself, so that no rule leads there.

        kube-proxy 1.37 does in mode nftables, at loopback addresses (``nodePortAddresses: [localhost]``).
        """
        return self.resolved.destination.is_loopback and any(each.table == NFT_TABLE for each in self.evidence.counts)

    def taken_by_others(self, flows: Iterable[Flow]) -> list[Observation]:
        """The requests of these flows that a program got at a port to which no rule of the engine leads.

        Any program of a node may accept a connection or get a datagram. It is the proxy's process where such a rule
        leads to its port.
        """
        leading = {(rule.count.node, rule.leads_to_port) for rule in self.leading_to_program}
        got = (seen for flow in flows if (seen := flow.taken) is not None)
        return [
            seen
            for seen in got
            if seen.netns_name in self.evidence.metered_nodes
            and (seen.netns_name, str(seen.destination_port)) not in leading
        ]

    @cached_property
    def discarded(self) -> tuple[Discarded, ...]:
        """What proxies' processes discarded of the probe's datagrams for the dialled service port.

        A process counts all that it discards, also of other traffic. The taps bound its count: no more datagrams of the
        probe were discarded than came to it.
        """
        own = f"{self.resolved.service_port}/{Protocol.UDP}"
        found = [each for each in self.evidence.discarded if each.service_port == own]
        if not found:
            return ()
        came = Counter(got.netns_name for flow in self.flows if (got := flow.taken) is not None)
        came -= Counter(got.netns_name for got in self.taken_by_others(self.flows))
        return tuple(replace(each, datagrams=min(each.datagrams, came[each.node])) for each in found if came[each.node])

    # Sources.

    def source_expectation(self, flow: Flow) -> SourceExpectation | None:
        """What the author expects of a flow's source at its backend; ``None`` without such an expectation."""
        expected = self.expect.source
        if isinstance(expected, SourceByBackend):
            return expected.of.get(flow.reached[0]) if flow.reached else None
        return expected

    def ways(self, flow: Flow) -> list[MasqueradedAs]:
        """What masquerading gives a flow, by the nodes on its way that may translate it, in order."""
        backend = flow.arrivals[0].destination if flow.arrivals else None
        ways = [each for each in self.resolved.masquerades if each.backend == backend]
        if len(ways) < 2:
            return ways
        requests = [each for each in flow.passages if each.packet is Packet.REQUEST]
        if self.resolved.translators:  # a sender's own node may leave the packet to the balancer
            changed = [each for each in requests if (each.destination, each.destination_port) != self.dialled]
            requests = changed or requests
        passed = [each.netns_name for each in requests]
        return sorted((way for way in ways if way.node in passed), key=lambda way: passed.index(way.node))

    def expected_source(self, flow: Flow) -> IPAddress | None:
        """The source that a flow's backend must see.

        It is ``None`` where neither author nor network gives one, and where nothing masquerades a flow that must be.
        """
        own = self.resolved.sender.address_of_flow(flow.number)
        match self.source_expectation(flow):
            case Preserved():
                return own
            case Masqueraded():
                # A proxy's own connection to its own node comes from the address that it dials.
                of_proxy = flow.relayed is not None
                return next((way.source or (way.backend if of_proxy else None) for way in self.ways(flow)), None)
            case SourceAddress(address):
                return address
            case NodeDevice():
                return next((way.source for way in self.ways(flow)), self.source)
        return None

    # Doubts.

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the evidence as a whole."""
        return tuple(doubts_about(self.resolved, self.evidence, self.flows))

    @cached_property
    def may_be_late(self) -> tuple[str, ...]:
        """Reasons why a flow that no tap saw again may only be late."""
        if set(self.fates) == {Fate.DELIVERED}:
            accounted_for = answers_ended(self.resolved, self.evidence, self.flows)
        elif set(self.fates) == {Fate.LOST}:
            accounted_for = self.stack_drop is not None or dropped_by_rules(
                self.resolved, self.evidence, self.flows, self.dropping
            )
        else:
            accounted_for = False
        if accounted_for:
            return ()
        return tuple(reasons_it_may_be_late(self.resolved, self.evidence, self.flows, self.fates))

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """The doubt about verdicts on arrivals where no pod saw some of the flows."""
        unseen = len(self.flows) - len(self.arrived)
        if self.arrived:
            unseen -= self.fates.count(Fate.LOST_ON_LINK)
        if unseen and self.arrived:
            them = f"{unseen:,} of {amount(len(self.flows), 'flow')}"
            return (f"{them} did not arrive, so the judge cannot compare those",)
        return ("no flow arrived, so the judge has nothing to compare",) if unseen else ()


def fates_text(case: Case) -> str:
    """What became of the flows; a loss is called a drop only where rules or a stack account for all of it."""
    counts = Counter(case.fates)
    rules = case.dropping
    if set(counts) == {Fate.LOST} and sum(rule.count.packets for rule in rules) >= case.packets:
        return f"dropped on {listed(nodes_of(rules))}"
    if (drop := case.stack_drop) is not None:
        return f"dropped on {drop.node} by {drop.by}"
    if len(case.flows) == 1:
        return str(case.fates[0])
    return ", ".join(f"{count:,} {fate}" for fate, count in counts.most_common())


def fate_clause(case: Case, flow: Flow, fate: Fate) -> str:
    """A clause about what the taps saw of a flow."""
    heard = [f"{icmp_words(icmp)} from {icmp.source}" for icmp in flow.errors if icmp.icmp]
    heard += [f"ICMP port unreachable from {icmp.source}" for icmp in flow.unreachables]
    heard += [f"a reset from {endpoint(reset.source, reset.source_port)}" for reset in flow.resets]
    heard += [f"a reply from {endpoint(reply.source, reply.source_port)}" for reply in flow.replies]
    if not flow.arrivals:
        heard += [f"the end of the connection from {endpoint(end.source, end.source_port)}" for end in flow.closings]
    answers = listed(list(dict.fromkeys(heard)))
    match fate:
        case Fate.DELIVERED:
            return f"it arrived at {flow.reached[0]}"
        case Fate.MULTIPLIED if len(flow.reached) > 1:
            return f"it arrived at {listed(flow.reached)}"
        case Fate.MULTIPLIED:
            left = times(flow.sendings)
            return f"it arrived {times(len(flow.arrivals))} at {flow.reached[0]}, but left {left}"
        case Fate.COPIED:
            where = copies(flow.strays) if flow.strays else f"{case.lost_copies[flow.number]}, and went no further"
            return f"it arrived at {listed(flow.reached)}, and a copy of it came in at {where}"
        case Fate.STRAYED:
            stray = flow.strays[0]
            return (
                f"it came in at {stray.netns_name}, addressed to {endpoint(stray.destination, stray.destination_port)}"
            )
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            return f"the sender's own kernel refused to send it: {errors}"
        case Fate.UNEXPLAINED:
            return f"{case.resolved.sender.name} heard {answers}, but no pod saw the request"
        case _:
            arrival = f"it arrived at {listed(flow.reached)}, and " if flow.reached else ""
            return f"{arrival}{case.resolved.sender.name} heard {answers}"


def nodes_of(rules: Sequence[CountedRule]) -> list[str]:
    """The nodes on which rules counted, each once."""
    return list(dict.fromkeys(rule.count.node for rule in rules))
