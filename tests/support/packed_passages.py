"""Frames at devices of nodes, packed as a run packs them."""

import struct

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.passages import LEFT, OTHERHOST, REPLY, Passages, pack

__all__ = ["packed"]


def packed(seen: list[Observation]) -> tuple[Passages, ...]:
    """Requests and replies of one protocol, tap by tap."""
    taps = {(each.netns_name, each.device): each for each in seen}
    return tuple(one_tap([each for each in seen if (each.netns_name, each.device) == tap]) for tap in taps)


def one_tap(seen: list[Observation]) -> Passages:
    rows = []
    for each in seen:
        kind = (
            REPLY * (each.packet is Packet.REPLY)
            | LEFT * (each.direction is Direction.OUT)
            | OTHERHOST * each.otherhost
        )
        ends = each.source.packed + each.destination.packed
        ports = struct.pack("!HH", each.source_port, each.destination_port)
        rows.append(struct.pack("<IBII", each.flow, kind, *divmod(each.at, 1_000_000_000)) + ends + ports)
    planes = [bytes(row[at] for row in rows) for at in range(len(rows[0]))]
    first = seen[0]
    return pack(first.netns_name, first.device, first.protocol, first.source.version, planes)
