"""Source ports that changed on the way to a backend although the source address did not, and what excuses the kernel.

The kernel gives a connection source NAT without any rule, which keeps address and port
(``nf_nat_alloc_null_binding``). It changes the port only if another connection holds the reply tuple already
(``nf_nat_used_tuple``), as of one client port to two Services with the same endpoint. Whatever else changes a port is a
rule's work, or that of a proxy that ends connections.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Observation, TableEntry, TrackedFlow
from proxylab.verdict.flows.flows import Flow


class ConntrackTuple(Struct, frozen=True):
    """The protocol and both ends of packets in one direction, as connection tracking keeps them."""

    protocol: Transport
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int


_WITH_PORTS = frozenset({Transport.TCP, Transport.UDP, Transport.SCTP})


def arrival_from_another_port(flow: Flow) -> Observation | None:
    """The first request at a pod from a port from which the flow did not leave.

    A program that ends the connection opens another one from a port of its own.
    """
    left = {departure.source_port for departure in flow.departures}
    if not left or flow.relayed is not None:
        return None
    return next((each for each in flow.arrivals if each.protocol in _WITH_PORTS and each.source_port not in left), None)


def nodes_that_changed_it(flow: Flow, arrival: Observation) -> list[str]:
    """The nodes whose connection tracking translated the flow to that port."""
    return [each.node for each in flow.tracked if _answers(each, arrival)]


def holders(entries: Iterable[TableEntry]) -> dict[tuple[str, ConntrackTuple], TableEntry]:
    """The entry that holds a tuple, in either direction, by the node and the tuple."""
    held: dict[tuple[str, ConntrackTuple], TableEntry] = {}
    for each in entries:
        back_from = each.reply_source, each.reply_source_port
        back_to = each.reply_destination, each.reply_destination_port
        there = ConntrackTuple(each.protocol, each.source, each.source_port, each.destination, each.destination_port)
        back = ConntrackTuple(each.protocol, *back_from, *back_to)
        held[each.node, there] = held[each.node, back] = each
    return held


def other_holder(
    held: Mapping[tuple[str, ConntrackTuple], TableEntry], nodes: Iterable[str], replies: ConntrackTuple, left: int
) -> TableEntry | None:
    """The entry of another connection that holds the tuple of unchanged replies, on the node that changed the port.

    ``replies`` are as the backend sends them, and ``left`` is the port from which the request left.
    """
    unchanged = replace(replies, destination_port=left)
    for node in nodes:
        own, other = held.get((node, replies)), held.get((node, unchanged))
        if own is not None and other is not None and own != other:
            return other
    return None


def _answers(tracked: TrackedFlow, arrival: Observation) -> bool:
    """Whether the replies of that entry are those of the arrival."""
    seen = (arrival.destination, arrival.destination_port, arrival.source, arrival.source_port)
    there = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination, tracked.reply_destination_port)
    return seen == there
