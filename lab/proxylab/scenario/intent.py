"""What a scenario wants to know: probes and streams, and what must become of them.

Owns: the frozen objects of ``spec.probes`` and ``spec.streams``; ``course`` has steps. ``model`` exports them all.
Must not: know YAML, pydantic, or addresses that the author did not write.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.frozen import dataclass
from proxylab.scenario.versions import VersionRange
from proxylab.scenario.words import Frontend, Manner, Outcome, Position, Reply, Spread

__all__ = [
    "MOST_FLOWS",
    "STREAM_EVERY",
    "AddressTarget",
    "ConntrackExpect",
    "EngineFailure",
    "Entries",
    "Exceptional",
    "Expect",
    "HostTarget",
    "HttpExpect",
    "NodeDevice",
    "PodTarget",
    "Preserved",
    "Probe",
    "Send",
    "ServiceTarget",
    "Shares",
    "Source",
    "SourceExpectation",
    "Stream",
    "Target",
]


MOST_FLOWS: Final = 32_000
"""The most flows of one probe: each has a source port of its own, and the lab has to find so many that nobody uses."""


STREAM_EVERY: Final = 20
"""The time between two packets of a stream that does not say it, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """``from``: who sends. Address and port are ``None`` where the kernel (or the lab) chooses them.

    With ``loopback`` a node dials from its loopback address; with ``all_addresses`` (``address: all``) the flows of an
    outside host leave from each of its addresses in turn.
    """

    name: str
    address: IPAddress | None = None
    all_addresses: bool = False
    port: int | None = None
    loopback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTarget:
    """A front of a Service.

    ``port`` is a service port's name or number, ``None`` where the Service has one port only. ``node`` is the node
    whose port is dialled, or, for another front dialled from outside, the node that the router hands the packet to.
    ``address`` is the one to dial where the front has several, and ``family`` says of which family it is to be.
    """

    service: str
    namespace: str = "default"
    port: str | int | None = None
    via: Frontend
    node: str | None = None
    address: IPAddress | None = None
    family: Family | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTarget:
    """A pod's own address, past all Services. ``port`` is ``None`` where the pod has one port only."""

    pod: str
    port: int | None = None
    family: Family | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTarget:
    """An outside host's own address. Without ``port`` for an echo request only."""

    host: str
    port: int | None
    family: Family | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressTarget:
    """Any address. Without ``port`` for an echo request only."""

    address: IPAddress
    port: int | None


Target = ServiceTarget | PodTarget | HostTarget | AddressTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """What is sent: ``flows`` flows, each with a 5-tuple of its own; ``payload`` in bytes beyond the identity.

    ``protocol`` is ``None`` where the target decides it (a service port's own protocol); ICMP is an echo request.
    ``every`` is the time between two packets of a stream, in milliseconds. ``frame_to`` names a place on the sender's
    link, or is a MAC address; empty for the next hop.
    """

    protocol: Transport | None = None
    manner: Manner = Manner.CONNECT
    flows: int = 1
    payload: int = 0
    every: int | None = None
    frame_to: str = ""


@dataclass(frozen=True, slots=True)
class Preserved:
    """``source: preserved``: the backend sees the sender's own address."""


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """``source: {node, device}``: the backend sees the node's address on that device (uplink, pods, overlay)."""

    node: str
    device: str


SourceExpectation = Preserved | NodeDevice | IPAddress


@dataclass(frozen=True, slots=True)
class Shares:
    """``spread: {echo-1: 0.5, echo-2: 0.5}``: the share of the flows that each backend gets. They make 1 together."""

    of: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpExpect:
    """What an HTTP request is answered; ``local_endpoints`` stands in the body of a health-check node port."""

    status: int
    local_endpoints: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Which entries of the connection tracking table are meant: those that fit everything said.

    ``protocol`` is that of the probe, or in a step any that streams and their like have, where none is given.
    ``reply_from`` and ``original_from`` are names of the scenario or the text of addresses; ``masqueraded`` is whether
    another source, address or port, was put in the place of the sender's.
    """

    protocol: Transport | None = None
    reply_from: str | None = None
    original_from: str | None = None
    port: int | None = None
    masqueraded: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConntrackExpect:
    """What the tables of the nodes (of ``node`` only, where one is given) must hold, and must not."""

    node: str | None = None
    some: Entries | None = None
    none: Entries | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold. ``positions`` gives the place of each key that the author wrote, by its YAML name."""

    outcome: Outcome
    backends: tuple[str, ...] | None = None
    source: SourceExpectation | None = None
    spread: Spread | Shares | None = None
    at: str | None = None
    reply: Reply | None = None
    http: HttpExpect | None = None
    conntrack: ConntrackExpect | None = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptional:
    """One entry of ``except``: what holds instead, in which cases, and why.

    ``when`` gives axes of the matrix and ``mode`` with the value each must have (see ``Case.axes``), ``version`` the
    versions of the proxy; ``None`` is any.
    """

    when: Mapping[str, str]
    version: VersionRange | None = None
    expect: Expect
    because: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailure:
    """One entry of a scenario's own ``except``: engines that cannot program it (see ``Exceptional``).

    ``says`` is a part of the last lines that such an engine writes.
    """

    when: Mapping[str, str]
    version: VersionRange | None = None
    says: str
    because: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One intent: from whom, to what, how many flows, and what must become of them."""

    name: str
    source: Source
    target: Target
    send: Send
    expect: Expect
    exceptions: tuple[Exceptional, ...] = ()
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One 5-tuple that lives through all steps."""

    name: str
    source: Source
    target: Target
    send: Send
    position: Position
