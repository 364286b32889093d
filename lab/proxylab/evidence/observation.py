"""``Observation``: one packet of one flow, as one tap saw it; with its kind, its direction and its leg."""

from enum import IntEnum, StrEnum

from proxylab.addresses import IPAddress, Transport
from proxylab.encoding import Record

__all__ = ["Direction", "Leg", "Observation", "Packet"]


class Packet(StrEnum):
    """The kind of a packet in its flow."""

    REQUEST = "request"
    REPLY = "reply"
    RESET = "reset"
    PORT_UNREACHABLE = "port-unreachable"
    OTHER_ICMP = "other-icmp"
    CLOSE = "close"
    """The end of an accepted connection, by FIN or RST. Recorded at the sender, where proxies end connections."""


class Direction(StrEnum):
    """Which way a packet crosses the device it was seen on, as the namespace of that device sees it."""

    IN = "in"
    OUT = "out"


class Leg(IntEnum):
    """The part of a flow that a packet belongs to: a program divides it that ends a connection and opens another."""

    OWN = 0
    """From the sender to the program, or to the pod where no program ends the flow."""
    ONWARD = 1
    """From the program to the endpoint, with the flow's request."""
    TRIED = 2
    """From the program to an endpoint that did not get the request."""


class Observation(Record, frozen=True, array_like=True, gc=False):
    """One packet of one flow at one tap.

    For ICMP errors ``source``/``destination`` are those of the error itself, ports are 0, and ``icmp`` is
    ``(type, code)``; the packet that the error quotes identifies the flow. ``netns_name`` names the node, pod or host.
    For an echo request and its reply the requester's port is the identifier, as in connection tracking, and the other
    port is 0. ``otherhost`` marks a frame for another device's MAC (PACKET_OTHERHOST, packet(7)), which a bridge floods
    while it does not know the MAC: the stack behind this device drops it.
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
    leg: Leg = Leg.OWN
