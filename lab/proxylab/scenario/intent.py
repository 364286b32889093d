"""The frozen objects of ``spec.probes`` and ``spec.streams``, with their expectations. ``model`` exports them all."""

from typing import Final

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.encoding import Record, TaggedRecord
from proxylab.scenario.expect import Expect
from proxylab.scenario.matrix import Exceptional
from proxylab.scenario.words import Frontend, Manner, Position

__all__ = [
    "MOST_FLOWS",
    "STREAM_EVERY",
    "AddressTarget",
    "HostTarget",
    "PodTarget",
    "Probe",
    "Send",
    "ServiceTarget",
    "Source",
    "Stream",
    "Target",
]


MOST_FLOWS: Final = 32_000
"""The most flows of one probe. Each needs an unused source port of its own."""


STREAM_EVERY: Final = 20
"""The default time between two packets of a stream, in milliseconds."""


class Source(Record, frozen=True, kw_only=True):
    """``from``: the sender. Address and port are ``None`` if the kernel (or the lab) chooses them.

    With ``loopback`` a node dials from its loopback address; with ``all_addresses`` (``address: all``) the flows of an
    outside host leave from each of its addresses in turn.
    """

    name: str
    address: IPAddress | None = None
    all_addresses: bool = False
    port: int | None = None
    loopback: bool = False


class ServiceTarget(TaggedRecord, frozen=True, kw_only=True):
    """A frontend of a Service.

    ``port`` is a service port's name or number, ``None`` if the Service has only one. ``node`` is the node to dial for
    a node port; for another frontend dialled from outside, the node to which the router sends the packet. ``address``
    and ``family`` choose among several addresses of the frontend.
    """

    service: str
    namespace: str = "default"
    port: str | int | None = None
    via: Frontend
    node: str | None = None
    address: IPAddress | None = None
    family: Family | None = None


class PodTarget(TaggedRecord, frozen=True, kw_only=True):
    """A pod's own address, without a Service. ``port`` is ``None`` if the pod has only one."""

    pod: str
    port: int | None = None
    family: Family | None = None


class HostTarget(TaggedRecord, frozen=True, kw_only=True):
    """An outside host's own address. ``port`` is ``None`` only for an echo request."""

    host: str
    port: int | None
    family: Family | None = None


class AddressTarget(TaggedRecord, frozen=True, kw_only=True):
    """Any address. ``port`` is ``None`` only for an echo request."""

    address: IPAddress
    port: int | None


Target = ServiceTarget | PodTarget | HostTarget | AddressTarget


class Send(Record, frozen=True, kw_only=True):
    """The packets to send: ``flows`` flows, each with its own 5-tuple; ``payload`` bytes after the flow's identity.

    ``protocol`` is ``None`` if the target decides it (a service port's own protocol); ICMP is an echo request.
    ``every`` is the time between two packets of a stream, in milliseconds. ``frame_to`` names a node, pod or host on
    the sender's link, or is a MAC address; empty for the next hop.
    """

    protocol: Transport | None = None
    manner: Manner = Manner.CONNECT
    flows: int = 1
    payload: int = 0
    every: int | None = None
    frame_to: str = ""


class Probe(Record, frozen=True, kw_only=True):
    """One test: a sender, a target, the packets, and the expected result."""

    name: str
    source: Source
    target: Target
    send: Send
    expect: Expect
    exceptions: tuple[Exceptional, ...] = ()
    position: Position


class Stream(Record, frozen=True, kw_only=True):
    """One flow that lasts through all steps."""

    name: str
    source: Source
    target: Target
    send: Send
    position: Position
