"""Connection tracking, as a second witness of where each flow went."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.evidence.evidence import TableEntry, TrackedFlow
from proxylab.kernel.netlink.conntrack import Conntrack, Tuple
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe

_Row = tuple[Any, ...]
"""The values of a ``TrackedFlow``: there are many, and a record takes ten times as long to make."""


class ConntrackReader:
    """Connection tracking on all nodes of a lab, and on other machines that translate packets.

    ``hidden`` are the lab's own addresses: whole tables are read without the connections that they answer.
    """

    def __init__(self, netns_by_name: Mapping[str, NetNs], hidden: Collection[IPAddress] = ()) -> None:
        self._netns_by_name = netns_by_name
        self._hidden = hidden
        self._lookups: dict[str, Conntrack] = {}

    def flows(self, resolved: ResolvedProbe, ports: Sequence[int]) -> tuple[TrackedFlow, ...]:
        """The conntrack entries of a probe's flows on the nodes and ``translators``, each found by its source port.

        The lookup key is the tuple that the sender dialled: the machine that translates it first sees that one.
        """
        addresses = resolved.sender.addresses
        rows: list[_Row] = []
        for machine in (*resolved.nodes, *resolved.translators):
            lookup = self._lookup(machine)
            for turn, address in enumerate(addresses):
                dialled = Tuple(resolved.protocol_number, address, 0, resolved.destination, resolved.port)
                replies = enumerate(lookup.replies(dialled, ports[turn :: len(addresses)]))
                rows += (
                    (turn + number * len(addresses), machine, *reply[1:])
                    for number, reply in replies
                    if reply is not None
                )
        last, followed = rows, set[tuple[str, Tuple]]()
        while last:
            last = list(self._further(resolved, last, followed))
            rows += last
        return tuple(starmap(TrackedFlow, rows))

    def _further(
        self, resolved: ResolvedProbe, rows: Sequence[_Row], followed: set[tuple[str, Tuple]]
    ) -> Iterator[_Row]:
        """The entries on other machines, of flows that one machine changed and sent on to an address that is no pod's.

        That address may be a node's, and that node translates the flow again: its entry is keyed by the changed tuple.
        A node that masquerades its pods changes the source alone. ``followed`` are the changes that were looked up.
        """
        pods = {receiver.address for receiver in resolved.receivers}
        unchanged = {(source, resolved.destination) for source in resolved.sender.addresses}
        sent_on: defaultdict[tuple[str, Tuple], list[tuple[int, int]]] = defaultdict(list)
        follow: dict[tuple[int, int], bool] = {}  # by id(): there are few objects, and hashing an address is slow
        for flow, machine, answers, port, source, source_port in rows:
            ends = id(answers), id(source)
            if ends not in follow:
                follow[ends] = answers not in pods and (source, answers) not in unchanged
            if follow[ends]:
                became = Tuple(resolved.protocol_number, source, 0, answers, port)
                if (machine, became) not in followed:
                    sent_on[machine, became].append((flow, source_port))
        followed |= sent_on.keys()
        for (machine, became), flows in sent_on.items():
            for other in (*resolved.nodes, *resolved.translators):
                if other != machine:
                    replies = self._lookup(other).replies(became, [source_port for _, source_port in flows])
                    yield from (
                        (flow, other, *reply[1:])
                        for (flow, _), reply in zip(flows, replies, strict=True)
                        if reply is not None
                    )

    def _lookup(self, machine: str) -> Conntrack:
        lookup = self._lookups.get(machine)
        if lookup is None:
            lookup = self._lookups[machine] = Conntrack(self._netns_by_name[machine])
        return lookup

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

    def forget(self, machine: str) -> None:
        """Close what looks up in a machine that goes."""
        lookup = self._lookups.pop(machine, None)
        if lookup is not None:
            lookup.close()

    def close(self) -> None:
        """Close every lookup."""
        for lookup in self._lookups.values():
            lookup.close()
        self._lookups.clear()
