"""``expect``: the keys of a probe's expected result, and those that a step's has too.

``proxylab.scenario.expectations`` compares them with each other and with the rest of the scenario.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Final

from msgspec import field

from proxylab.addresses import IPAddress, Transport
from proxylab.encoding import Record, TaggedRecord
from proxylab.scenario.keys import NOT_EMPTY, Between, Check, Declared, Form, Key, Read, TaggedDeclared, refused
from proxylab.scenario.problems import describe, shown
from proxylab.scenario.syntax import PortNumber, is_address
from proxylab.scenario.words import Outcome, Position, Reply, Spread

__all__ = [
    "ConntrackExpect",
    "Device",
    "Entries",
    "Expect",
    "HttpExpect",
    "NodeDevice",
    "Preserved",
    "SeenSource",
    "Shares",
    "SourceAddress",
    "SourceExpectation",
]

_MOST_DEVICE: Final = 15  # IFNAMSIZ of linux/if.h is 16 with its final null


class Device(StrEnum):
    """The device of a node that gives masqueraded packets their source address."""

    UPLINK = "uplink"
    PODS = "pods"
    OVERLAY = "overlay"


class Preserved(TaggedRecord, frozen=True):
    """``source: preserved``: the backend sees the sender's own address."""


class NodeDevice(TaggedDeclared, frozen=True):
    """The source address that a node puts into masqueraded packets."""

    node: Annotated[str, Key("The node.", ["node-a"])]
    device: Annotated[
        Device,
        Key("uplink for the node's own address, pods for the pods' gateway, overlay for the tunnel's.", ["uplink"]),
    ]


class SourceAddress(TaggedRecord, frozen=True):
    """``source: ADDRESS``: the backend sees this address."""

    address: IPAddress


SourceExpectation = Preserved | NodeDevice | SourceAddress


def _seen_source(value: object) -> object:
    if isinstance(value, dict) or value == "preserved":
        return value
    if not isinstance(value, str):
        raise refused(f"must be preserved, an address, or {{node, device}}, is {describe(value)}")
    if not is_address(value):
        raise refused(f"{shown(value)} is neither preserved nor an address", word=value, known=["preserved"])
    return value


def _source_of(written: "str | NodeDevice") -> SourceExpectation:
    if isinstance(written, NodeDevice):
        return written
    return Preserved() if written == "preserved" else SourceAddress(ip_address(written))


SeenSource = Annotated[SourceExpectation, Form(Annotated[str | NodeDevice, Read(_seen_source)], _source_of)]


class Shares(Record, frozen=True):
    """``spread: {echo-1: 0.5, echo-2: 0.5}``: the share of the flows that each backend gets. The shares sum to 1."""

    of: Mapping[str, float]


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise refused(f"must be a share between 0 and 1, is {describe(value)}")
    return float(value)


def _whole(shares: dict[str, float]) -> dict[str, float]:
    if not math.isclose(total := math.fsum(shares.values()), 1, abs_tol=0.005):
        raise refused(f"the shares sum to {total:.3g}", allowed="they must sum to 1")
    return shares


def _spread_of(written: Spread | dict[str, float]) -> Spread | Shares:
    return Shares(written) if isinstance(written, dict) else written


_ShareByBackend = Annotated[Mapping[str, Annotated[float, Read(_share, float)]], Check(_whole)]
_AnySpread = Annotated[Spread | Shares, Form(Spread | _ShareByBackend, _spread_of)]


def _at(text: str) -> str:
    node, slash, device = text.partition("/")
    if not node or (slash and (not device or len(device) > _MOST_DEVICE or "/" in device or not device.isprintable())):
        raise refused(f"{shown(text)} does not name a node, pod or host", allowed="allowed: NAME or NAME/DEVICE")
    return text


def _name_or_address(value: object) -> object:
    if not isinstance(value, str):
        raise refused(f"must be a name or an address, is {describe(value)}")
    return value


_NameOrAddress = Annotated[str, Read(_name_or_address, str)]


class HttpExpect(Declared, frozen=True, kw_only=True):
    """The answer to an HTTP request."""

    status: Annotated[int, Between(100, 599), Key("The status code.", [200])]
    local_endpoints: Annotated[
        Annotated[int, Between(0, 100_000)] | None,
        Key("How many local endpoints a health-check node port reports.", [2]),
    ] = None


class Entries(Declared, frozen=True, kw_only=True):
    """A filter for entries of the connection tracking table: an entry must match every key."""

    protocol: Annotated[
        Transport | None,
        Key("The transport protocol. The default is the probe's own, and in a step TCP, UDP and SCTP.", ["UDP"]),
    ] = None
    reply_from: Annotated[
        _NameOrAddress | None,
        Key("The source of the reply direction: a name of the scenario, or an address.", ["old"]),
    ] = None
    original_from: Annotated[
        _NameOrAddress | None,
        Key("The source of the original direction: a name of the scenario, or an address.", ["client"]),
    ] = None
    port: Annotated[PortNumber | None, Key("The port that was dialled.", [53])] = None
    masqueraded: Annotated[
        bool | None, Key("Whether the kernel replaced the sender's source address or port.", [True])
    ] = None


class ConntrackExpect(Declared, frozen=True, kw_only=True):
    """Entries that the connection tracking table must hold, and entries that it must not."""

    node: Annotated[str | None, Key("The node to look at. The default is all nodes.", ["node-a"])] = None
    some: Annotated[Entries | None, Key("At least one entry must match this.", [{"replyFrom": "new"}])] = None
    none: Annotated[Entries | None, Key("No entry may match this.", [{"replyFrom": "old"}])] = None


class Expect(Declared, frozen=True, kw_only=True):
    """The result that every flow of the probe must have."""

    outcome: Annotated[
        Outcome,
        Key(
            "delivered to one backend, once, and answered from the dialled address (by connect, data goes both ways; "
            "how a connection ends is not judged); rejected by an ICMP error; refused by a network stack (a TCP reset, "
            "or ICMP port unreachable for UDP); dropped silently; untranslated, with the destination unchanged; or "
            "closed: accepted, then closed without an answer. Required unless http is given.",
            ["delivered"],
            implied=Outcome.DELIVERED,
        ),
    ]
    backends: Annotated[
        Annotated[tuple[str, ...], NOT_EMPTY] | None,
        Key("The pods that the flows must reach: each of these, and no other.", [["echo-1", "echo-2"]]),
    ] = None
    source: Annotated[
        SeenSource | None,
        Key(
            "The source that the backend sees: preserved for the sender's own, an address, or the address of a node's "
            "device. Required with delivered.",
            ["preserved", "172.18.0.2", {"node": "node-a", "device": "uplink"}],
        ),
    ] = None
    spread: Annotated[
        _AnySpread | None,
        Key(
            "How the flows spread over the backends: even, sticky (one backend for each client), or the share of each "
            "backend.",
            ["even", {"echo-1": 0.75, "echo-2": 0.25}],
        ),
    ] = None
    at: Annotated[
        Annotated[str, Check(_at)] | None,
        Key(
            "Where a flow that is not delivered ends: a node, or a pod or host that received it and did not accept it. "
            "NAME/DEVICE names one device there.",
            ["node-a", "node-a/cni0", "echo"],
        ),
    ] = None
    reply: Annotated[
        Reply | None,
        Key(
            "The source address of the answer: translated for the address that was dialled, untranslated for the "
            "backend's own.",
            ["untranslated"],
        ),
    ] = None
    http: Annotated[
        HttpExpect | None,
        Key("The answer that an HTTP request must get.", [{"status": 503, "localEndpoints": 0}]),
    ] = None
    conntrack: Annotated[
        ConntrackExpect | None,
        Key("What the connection tracking table must hold.", [{"none": {"replyFrom": "old"}}]),
    ] = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)
