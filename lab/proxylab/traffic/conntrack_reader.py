"""Connection tracking on the nodes, as a second witness of where each flow went."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.evidence.evidence import TableEntry, TrackedFlow
from proxylab.kernel.netlink.conntrack import Conntrack, Tuple
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe


class ConntrackReader:
    """Connection tracking on all nodes of a lab.

    ``hidden`` are the lab's own addresses: whole tables are read without the connections that they answer.
    """

    def __init__(self, netns_by_name: Mapping[str, NetNs], hidden: Collection[IPAddress] = ()) -> None:
        self._netns_by_name = netns_by_name
        self._hidden = hidden
        self._lookups: dict[str, Conntrack] = {}

    def flows(self, resolved: ResolvedProbe, ports: Sequence[int]) -> tuple[TrackedFlow, ...]:
        """The conntrack entries of a probe's flows on the nodes, each found by its source port.

        The lookup key is the tuple that the sender dialled: the node that translates it first sees that one.
        """
        addresses = resolved.sender.addresses
        rows: list[tuple[object, ...]] = []
        for node in resolved.nodes:
            lookup = self._lookups.get(node)
            if lookup is None:
                lookup = self._lookups[node] = Conntrack(self._netns_by_name[node])
            for turn, address in enumerate(addresses):
                dialled = Tuple(resolved.protocol_number, address, 0, resolved.destination, resolved.port)
                replies = enumerate(lookup.replies(dialled, ports[turn :: len(addresses)]))
                rows += (
                    (turn + number * len(addresses), node, *reply[1:]) for number, reply in replies if reply is not None
                )
        rows += self._further(resolved, rows)
        return tuple(starmap(TrackedFlow, rows))

    def _further(self, resolved: ResolvedProbe, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[object, ...]]:
        """The entries on other nodes, of flows that one node changed and sent on to an address that is no pod's.

        That address may be a node's, and that node translates the flow again: its entry is keyed by the changed tuple.
        A node that masquerades its pods changes the source alone.
        """
        pods = {receiver.address for receiver in resolved.receivers}
        unchanged = {(source, resolved.destination) for source in resolved.sender.addresses}
        sent_on: defaultdict[tuple[str, Tuple], list[tuple[int, int]]] = defaultdict(list)
        follow: dict[tuple[int, int], bool] = {}  # by id(): there are few objects, and hashing an address is slow
        for flow, node, answers, port, source, source_port in rows:
            ends = id(answers), id(source)
            if ends not in follow:
                follow[ends] = answers not in pods and (source, answers) not in unchanged
            if follow[ends]:
                became = Tuple(resolved.protocol_number, source, 0, answers, port)
                sent_on[node, became].append((flow, source_port))
        for (node, became), flows in sent_on.items():
            for other in resolved.nodes:
                if other != node:
                    replies = self._lookups[other].replies(became, [source_port for _, source_port in flows])
                    yield from (
                        (flow, other, *reply[1:])
                        for (flow, _), reply in zip(flows, replies, strict=True)
                        if reply is not None
                    )

    def entries(
        self, resolved: ResolvedProbe, tracked: Iterable[TrackedFlow], ports: Sequence[int]
    ) -> tuple[TableEntry, ...] | None:
        """Entries on the probe's nodes, of its family; ``None`` if nothing about the probe asks for them.

        The kernel gives a flow another port if another connection holds the tuple of its replies. A flow from a port of
        the author's choice may meet such a connection on any node, so all entries are read; those from other ports have
        theirs for themselves, so where one was changed, the entries are read that hold its tuples. A whole table has
        the flows of all probes before this one.

        Raises:
            InternalError: the kernel refuses.
        """
        own = resolved.sender.addresses
        changed = [
            each
            for each in tracked  # ports first: it is fast
            if each.reply_destination_port != ports[each.flow] and each.reply_destination in own
        ]
        if resolved.tables or resolved.sender.port is not None or (changed and resolved.protocol is Transport.ICMP):
            return tuple(self.tables(resolved.nodes, Family.of(resolved.destination)))
        return tuple(dict.fromkeys(self._holders(resolved, changed, ports))) if changed else None

    def _holders(
        self, resolved: ResolvedProbe, changed: Iterable[TrackedFlow], ports: Sequence[int]
    ) -> Iterator[TableEntry]:
        """The entries that hold the replies of flows, as they are and as they would be with the port unchanged."""
        number, wanted = resolved.protocol_number, defaultdict[Tuple, list[int]](list)
        for each in changed:
            replies = Tuple(number, each.reply_source, each.reply_source_port, each.reply_destination, 0)
            wanted[replies] += (each.reply_destination_port, ports[each.flow])
        for node in resolved.nodes:
            for replies, its_ports in wanted.items():
                for found in self._lookups[node].holding(replies, its_ports):
                    if found is not None:
                        original, reply = found
                        yield TableEntry(node, resolved.protocol, *original[1:], *reply[1:])

    def tables(self, nodes: Iterable[str], family: Family) -> Iterator[TableEntry]:
        """All entries on these nodes, of one family. Raises ``InternalError``."""
        version = 4 if family is Family.IPV4 else 6
        transports = {transport.number(version): transport for transport in Transport}
        for node in nodes:
            table = Conntrack(self._netns_by_name[node])
            try:
                for entry in table.entries(family, *transports):
                    if entry.reply.source not in self._hidden:
                        transport = transports[entry.original.protocol]
                        yield TableEntry(node, transport, *entry.original[1:], *entry.reply[1:])
            finally:
                table.close()

    def close(self) -> None:
        """Close every lookup."""
        for lookup in self._lookups.values():
            lookup.close()
        self._lookups.clear()
