"""Counts what IPVS did with a probe, beside the rules of iptables; a ``kernel.netfilter.meters.Meter``.

IPVS has counters, but the kernel brings them up to date every two seconds only. Its connections are a better witness:
each one shows its client, its virtual server and the destination. ``IpvsMeter`` counts those that a probe has made, and
writes each destination as a rule that translates, in ipvsadm's words. Of a virtual server that has no destination for a
packet no connection remains. Then IPVS answers with ICMP port unreachable, which the stack counts with those of rules.

A rule that matches a set names no address. Where the set has a member for what the probe dials, the meter says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.iptables.meter import TableMeter
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.ipvs import (
    SETS,
    VIRTUAL_SERVERS,
    IpSet,
    IpvsConnection,
    IpvsDestination,
    Member,
    ServerKey,
    VirtualServer,
)
from proxylab.evidence.words import endpoint
from proxylab.kernel.capture.stack_counters import StackCounters, counters_in
from proxylab.kernel.netfilter.ipset import IpSets
from proxylab.kernel.netfilter.ipvs import Ipvs
from proxylab.kernel.netfilter.ipvs_connections import Connections, connection_in
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.ipset import NamedSet, SetMember
from proxylab.rules.packets import Answer, Packets, is_member
from proxylab.rules.texts import print_rule, read_rule

_UNREACHABLE: Final = {Family.IPV4: "IcmpOutDestUnreachs", Family.IPV6: "Icmp6OutDestUnreachs"}


class IpvsMeter:
    """Counts rules, connections and refusals of one family on one node."""

    max_frames_in_flight = None

    def __init__(self, netns: NetNs, family: Family, rules: TableMeter) -> None:
        self._netns = netns
        self._family = family
        self._rules = rules
        self._connections = Connections(netns)
        self._stack = StackCounters(netns)
        self._ipvs: Ipvs | None = None
        self._sets: IpSets | None = None
        self._resolved: ResolvedProbe | None = None
        self._before: frozenset[tuple[str, ...]] = frozenset()
        self._counters: Mapping[str, str] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the counters of rules are. No connection of a probe expires while it runs."""
        return self._rules.is_complete

    async def begin(self, resolved: ResolvedProbe) -> None:
        """Remember the counters of rules and of the stack, and the connections."""
        self._resolved = resolved
        await self._rules.begin(resolved)
        self._before = self._connections.read()
        self._counters = self._stack.read()

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that have counted since, then what IPVS did."""
        connected, stack = self._connections.read() - self._before, self._stack.read()
        counts = await self._rules.end()
        resolved = self._resolved
        if resolved is None:
            return counts
        made = [each for each in map(connection_in, connected) if each is not None]
        rejected = max(0, self._unreachables(stack) - sum(each.packets for each in counts if _rejects(each)))
        return (
            *self._with_members(counts, resolved),
            *self._led(made),
            *self._lacking(made),
            *self._refused(resolved, rejected),
        )

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they were at ``begin``."""
        return self._rules.rules_by_chain()

    def close(self) -> None:
        """Close all that is open."""
        self._rules.close()
        self._connections.close()
        self._stack.close()
        for opened in (self._ipvs, self._sets):
            if opened is not None:
                opened.close()

    def _led(self, connections: Iterable[IpvsConnection]) -> Iterator[RuleCount]:
        """What each virtual server did, destination by destination."""
        for one, packets in Counter(replace(each, client_port=0) for each in connections).items():
            to = endpoint(one.destination, one.destination_port)
            server = self._server(one.key)
            weight = next((each.weight for each in server.destinations if str(each) == to), 0)
            destination = IpvsDestination(address=one.destination, port=one.destination_port, weight=weight)
            text = print_rule(server.rule_of(destination))
            yield self._count(server, text, packets, "DNAT", one.destination, one.destination_port)

    def _lacking(self, connections: Iterable[IpvsConnection]) -> Iterator[RuleCount]:
        """The member of KUBE-LOOP-BACK that is missing where IPVS led a client to itself."""
        for one in (each for each in connections if each.client == each.destination):
            name = NodeSet.LOOP_BACK.name_in(self._family)
            member = Member(
                address=one.destination, protocol=one.protocol, port=one.destination_port, other=one.destination
            )
            if member not in self._read_sets().get(name, NodeSet.LOOP_BACK.of(self._family)).members:
                yield RuleCount(self._netns.name, SETS, name, str(member), 0)
                return

    def _read_sets(self) -> dict[str, IpSet]:
        if self._sets is None:
            self._sets = IpSets(self._netns)
        return {each.name: each for each in self._sets.sets()}

    def _refused(self, resolved: ResolvedProbe, packets: int) -> Iterator[RuleCount]:
        """The refusals of the dialled virtual server, if it has no destination for a packet."""
        protocol = resolved.protocol.served
        if packets and protocol is not None:
            server = self._server(ServerKey(resolved.destination, resolved.port, protocol))
            if server.scheduler and not any(each.weight for each in server.destinations):
                yield self._count(server, ", ".join(server.lines()), packets, "REJECT")

    def _count(
        self,
        server: VirtualServer,
        text: str,
        packets: int,
        target: str,
        address: IPAddress | None = None,
        port: int = 0,
    ) -> RuleCount:
        return RuleCount(self._netns.name, VIRTUAL_SERVERS, server.option, text, packets, target, address, port)

    def _server(self, key: ServerKey) -> VirtualServer:
        """The virtual server there; without a scheduler if there is none, or none any more."""
        if self._ipvs is None:
            self._ipvs = Ipvs(self._netns)
        return self._ipvs.server(key) or VirtualServer(**key._asdict(), scheduler="")

    def _unreachables(self, stack: Mapping[str, str]) -> int:
        """How many ICMP errors the stack has sent since ``begin`` that say that a destination is unreachable."""
        if stack == self._counters:
            return 0
        name = _UNREACHABLE[self._family]
        return counters_in(stack).get(name, 0) - counters_in(self._counters).get(name, 0)

    def _with_members(self, counts: Sequence[RuleCount], resolved: ResolvedProbe) -> Iterator[RuleCount]:
        """The counts, each with the member of its set that the probe's packets are."""
        sets: dict[str, IpSet] | None = None
        for count in counts:
            rule = read_rule(count.text)
            matched = rule.match("--match-set") if rule is not None else None
            if matched is None or matched.negated:
                yield count
                continue
            if sets is None:
                sets = self._read_sets()
            name, fields = matched.values
            member = member_for(sets[name].named, fields.split(","), resolved) if name in sets else None
            yield count if member is None else replace(count, member=",".join(member.fields))


def member_for(of: NamedSet, directions: Sequence[str], resolved: ResolvedProbe) -> SetMember | None:
    """The member that the probe's packets are: before their translation, or behind it."""
    ends = [(resolved.destination, resolved.port), *((each.address, each.port) for each in resolved.endpoints)]
    for end, port in ends:
        sent = Packets({resolved.protocol}, {resolved.sender.address}, {end}, destination_ports={port})
        for member in of.members:
            if is_member(member, of, directions, sent) is Answer.YES:
                return member
    return None


def _rejects(count: RuleCount) -> bool:
    rule = read_rule(count.text)
    return rule is not None and rule.target == "REJECT"
