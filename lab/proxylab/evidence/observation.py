"""One packet of one flow, as one tap saw it.

Owns: ``Observation``, and the words for what a packet is to its flow and which way it went.
Must not: judge, or know how observations are carried.
"""

from dataclasses import dataclass
from enum import StrEnum

from proxylab.addresses import IPAddress, Transport

__all__ = ["Direction", "Observation", "Packet"]


class Packet(StrEnum):
    """What a packet is to its flow."""

    REQUEST = "request"
    REPLY = "reply"
    RESET = "reset"
    PORT_UNREACHABLE = "port-unreachable"
    OTHER_ICMP = "other-icmp"


class Direction(StrEnum):
    """Which way a packet crosses the device it was seen on, as the namespace of that device sees it."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class Observation:
    """One packet of one flow at one tap.

    For ICMP errors ``source``/``destination`` are those of the error itself, ports are 0, and ``icmp`` is
    ``(type, code)``; the flow is known from the packet the error quotes. ``netns_name`` names the node, pod or host.
    Of an echo request and its reply the port of who asked is the identifier, as in connection tracking; that of who
    answers is 0. ``otherhost`` says that the frame was addressed to another device's MAC (PACKET_OTHERHOST, packet(7)),
    as a bridge floods it that does not know the MAC: the stack behind this device drops it unseen.
    """

    flow: int
    netns_name: str
    device: str
    direction: Direction
    packet: Packet
    protocol: Transport
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int
    at: int
    icmp: tuple[int, int] | None = None
    otherhost: bool = False
