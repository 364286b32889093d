"""Counts what mode ipvs did while a probe ran: rules of iptables, and flows that IPVS led to a destination or refused.

The kernel adds up its statistics of virtual servers every two seconds only (net/netfilter/ipvs/ip_vs_est.c). So the
meter compares the table of connections before and after a probe: each flow that IPVS took has an entry there. IPVS
counts no packet that it refuses. It refuses all packets to a virtual server without destinations, each with an ICMP
error, which the node's stack counts.
"""

from collections import Counter

from proxylab.addresses import Transport
from proxylab.engines.embedded.iptables.meter import TableMeter
from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.ipvs import IpvsConnection, VirtualServer
from proxylab.evidence.words import endpoint
from proxylab.kernel.capture.stack_counters import StackCounters, counters_in
from proxylab.kernel.netfilter.ipvs import read_connections, read_server
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe

__all__ = ["IpvsMeter"]

_TABLE = "ipvs"
_ERRORS = {4: "IcmpOutDestUnreachs", 6: "Icmp6OutDestUnreachs"}


class IpvsMeter:
    """Counts on one node, in one family. ``rules`` counts the rules around IPVS."""

    max_frames_in_flight = None

    def __init__(self, netns: NetNs, rules: TableMeter) -> None:
        self._netns, self._rules = netns, rules
        self._stack = StackCounters(netns)
        self._dialled: ResolvedProbe | None = None
        self._connections: frozenset[IpvsConnection] = frozenset()
        self._refusing: VirtualServer | None = None
        self._errors = 0

    @property
    def is_complete(self) -> bool:
        """Always true: the tables of the kernel miss nothing."""
        return True

    async def begin(self, resolved: ResolvedProbe) -> None:
        """Remember the counters, the connections, and whether the dialled virtual server has destinations."""
        self._dialled = resolved
        self._connections = read_connections(self._netns)
        self._refusing = self._without_destinations()
        self._errors = self._errors_sent()
        await self._rules.begin(resolved)

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that have counted since, then the destinations and virtual servers."""
        counts = await self._rules.end()
        node = self._netns.name
        new = Counter((each.server, each.destination) for each in read_connections(self._netns) - self._connections)
        led = [
            RuleCount(node, _TABLE, server, f"-a {server} -r {endpoint(*to)} -m", flows, "DNAT", *to)
            for (server, to), flows in sorted(new.items(), key=str)
        ]
        server = self._refusing
        if server is None or self._without_destinations() is None:
            return (*counts, *led)
        by_rules = sum(each.packets for each in counts if " -j REJECT" in each.text)
        refused = self._errors_sent() - self._errors - by_rules
        if refused <= 0:
            return (*counts, *led)
        return (*counts, *led, RuleCount(node, _TABLE, server.option, server.lines()[0], refused, "REJECT"))

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain."""
        return self._rules.rules_by_chain()

    def close(self) -> None:
        """Close what it reads."""
        self._stack.close()
        self._rules.close()

    def _without_destinations(self) -> VirtualServer | None:
        """The virtual server that the probe dials, if it has no destination that takes connections."""
        dialled = self._dialled
        if dialled is None or dialled.protocol is Transport.ICMP:
            return None
        protocol = dialled.protocol.served
        found = None if protocol is None else read_server(self._netns, (dialled.destination, dialled.port, protocol))
        return found if found is not None and not any(each.weight for each in found.destinations) else None

    def _errors_sent(self) -> int:
        """How many ICMP errors of this kind the node's stack has sent."""
        counters = counters_in(self._stack.read())
        version = 4 if self._dialled is None else self._dialled.destination.version
        return counters.get(_ERRORS[version], 0)
