"""``expect``: the keys of a probe's expected result, and those that a step's has too."""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Final

from msgspec import field

from proxylab.addresses import IPAddress, Transport
from proxylab.encoding import Record, TaggedRecord
from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import NOT_EMPTY, Between, Check, Declared, Key, Read, TaggedDeclared, WrittenAs, refused
from proxylab.scenario.promises import Proves
from proxylab.scenario.syntax import PortNumber, is_address
from proxylab.scenario.words import ErrorKind, IcmpError, Outcome, Position, Reply, Spread

_MOST_PORT: Final = 65_535
_MOST_DEVICE: Final = 15  # IFNAMSIZ of linux/if.h is 16 with its final null


class Device(StrEnum):
    """The device of a node that gives masqueraded packets their source address."""

    UPLINK = "uplink"
    PODS = "pods"
    OVERLAY = "overlay"


class Backend(Record, frozen=True):
    """``web-1`` or ``web-1:8443``: a pod or host that flows must reach, at any of its ports or at one."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def _backend(written: str) -> str:
    name, colon, port = written.partition(":")
    if not name or (colon and not (port.isascii() and port.isdecimal() and 0 < int(port) <= _MOST_PORT)):
        what = f"{shown(written)} is neither a pod nor a pod with a port"
        raise refused(what, allowed=f"allowed: NAME, or NAME:PORT with a port from 1 to {_MOST_PORT}")
    return written


def _backend_of(written: str) -> Backend:
    name, _, port = written.partition(":")
    return Backend(name, int(port) if port else None)


_AnyBackend = Annotated[Backend, WrittenAs(Annotated[str, Check(_backend)], _backend_of)]


class Preserved(TaggedRecord, frozen=True):
    """``source: preserved``: the backend sees the sender's own address, and no node masquerades the packet."""


class Masqueraded(TaggedRecord, frozen=True):
    """``source: masqueraded``: a node masquerades the packet, to the address that the network implies on its way."""


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


class SourceByBackend(TaggedRecord, frozen=True):
    """``source: {near: 10.244.0.1, far: 172.18.0.2}``: what each backend sees."""

    of: Mapping[str, Preserved | Masqueraded | SourceAddress]


SourceExpectation = Preserved | Masqueraded | NodeDevice | SourceAddress | SourceByBackend

_SOURCE_WORDS: Final = ("preserved", "masqueraded")
SOURCES: Final = "preserved, masqueraded, an address, or {node, device}"
"""For messages: what ``source`` may be."""


def _read_source(value: object, allowed: str = SOURCES) -> object:
    if not isinstance(value, str):
        raise refused(f"must be {allowed}, is {describe(value)}")
    if value not in _SOURCE_WORDS and not is_address(value):
        what = f"{shown(value)} is neither preserved, masqueraded nor an address"
        raise refused(what, word=value, known=_SOURCE_WORDS)
    return value


def _one_source(written: str) -> Preserved | Masqueraded | SourceAddress:
    if written in _SOURCE_WORDS:
        return Preserved() if written == "preserved" else Masqueraded()
    return SourceAddress(ip_address(written))


def _write_source(written: str | NodeDevice | dict[str, str]) -> SourceExpectation:
    if isinstance(written, dict):
        return SourceByBackend({name: _one_source(each) for name, each in written.items()})
    return written if isinstance(written, NodeDevice) else _one_source(written)


_SourceText = Annotated[str, Read(_read_source, str)]
_SourceThere = Annotated[str, Read(partial(_read_source, allowed="preserved, masqueraded or an address"), str)]
SourceKey = Annotated[
    SourceExpectation,
    WrittenAs(_SourceText | NodeDevice | Annotated[Mapping[str, _SourceThere], NOT_EMPTY], _write_source),
]


class ReplyByBackend(Record, frozen=True):
    """``reply: {near: untranslated, far: translated}``: the source of each backend's answer."""

    of: Mapping[str, Reply]


def _reply_of(written: Reply | dict[str, Reply]) -> Reply | ReplyByBackend:
    return ReplyByBackend(written) if isinstance(written, dict) else written


_AnyReply = Annotated[Reply | ReplyByBackend, WrittenAs(Reply | Annotated[Mapping[str, Reply], NOT_EMPTY], _reply_of)]


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
_AnySpread = Annotated[Spread | Shares, WrittenAs(Spread | _ShareByBackend, _spread_of)]


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


def _in_json(value: object) -> str:
    if not isinstance(value, str | int | bool):
        raise refused(f"must be a text, a whole number, true or false, is {describe(value)}")
    return json.dumps(value, ensure_ascii=False)


class HttpExpect(Declared, frozen=True, kw_only=True):
    """The answer to an HTTP request."""

    status: Annotated[int, Between(100, 599), Key("The status code.", [200])]
    local_endpoints: Annotated[
        Annotated[int, Between(0, 100_000)] | None,
        Key("How many local endpoints a health-check node port reports.", [2]),
    ] = None
    backends: Annotated[
        Annotated[tuple[str, ...], NOT_EMPTY] | None,
        Key(
            "Behind an Ingress: the pods that answer the requests: each of these, and no other. Without this key, too, "
            "only a ready endpoint to which host and path lead may answer with a success (2xx), not the controller "
            "itself.",
            [["web-1", "web-2"]],
        ),
    ] = None
    source: Annotated[
        _NameOrAddress | None,
        Key("Behind an Ingress: the source of the connection that the pod sees, by its name or address.", ["ingress"]),
    ] = None
    forwarded_for: Annotated[
        _NameOrAddress | None,
        Key(
            "Behind an Ingress: the address in X-Forwarded-For, as the pod sees it, itself or by the name that has it.",
            ["client", "10.244.0.1"],
        ),
    ] = None
    headers: Annotated[
        Annotated[Mapping[str, str], NOT_EMPTY] | None,
        Key("Headers that the answer must have, and their values.", [{"Content-Type": "application/json"}]),
    ] = None
    body: Annotated[
        Annotated[Mapping[str, Annotated[str, Read(_in_json, str | int | bool)]], NOT_EMPTY] | None,
        Key(
            "Values that an answer in JSON must have, by the names that lead to them, joined by dots.",
            [{"service.name": "echo", "serviceProxyHealthy": True}],
        ),
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


def _with_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


class ErrorExpect(Declared, frozen=True, kw_only=True):
    """The ICMP error that the sender hears about each flow. It quotes the packet as the sender sent it.

    Text stands for its kind alone.
    """

    kind: Annotated[
        ErrorKind,
        Key(
            "too-big for a packet above an MTU (fragmentation needed in IPv4), time-exceeded for one that is forwarded "
            "too often, unreachable for one that cannot be delivered.",
            ["too-big"],
        ),
    ]
    code: Annotated[IcmpError | None, Key("Of unreachable: which one.", ["host-unreachable"])] = None
    sent_by: Annotated[
        str,
        Key(
            "The machine that sends the error: a node, pod or outside host, or router. Its address need not be the "
            "error's source: a node that translates the flow back gives the error the address that was dialled.",
            ["node-a"],
            alias="by",
        ),
    ] = ""


class Also(StrEnum):
    """What judges a probe besides the keys that its author writes."""

    PROMISES = "promises"


class Expect(Declared, frozen=True, kw_only=True):
    """The result that every flow of the probe must have. Without it, the oracle says what Kubernetes promises.

    ``oracle.promised`` fills in the last three fields. ``follows`` are the oracle's rows behind each key that it adds.
    ``either`` are further results, one of which is as good as this one, where Kubernetes leaves it open. ``undecided``
    is why the oracle does not say what must happen.
    """

    outcome: Annotated[
        Outcome,
        Key(
            "delivered to one backend, once, with its data, and answered from the dialled address (by connect, data "
            "goes both ways, and over TCP both sides then end the connection in order, with a FIN; of HTTP the lab "
            "judges the answer, not the end); rejected by an ICMP error; refused by a network stack (a TCP reset, or"
            " ICMP port unreachable for UDP); dropped silently; untranslated, with the destination unchanged; or "
            "closed: accepted, then closed without an answer. Required unless also, error or http is given: an answer "
            "of a Service must be delivered.",
            ["delivered"],
            implied=Outcome.DELIVERED,
        ),
    ]
    backends: Annotated[
        Annotated[tuple[_AnyBackend, ...], NOT_EMPTY] | None,
        Key(
            "The pods that the flows must reach: each of these, and no other. A backend that no flow reached fails; "
            "where send.flows is too small to reach each, the verdict is inconclusive. With session affinity, few "
            "clients need not reach each. The name of an entry with replicas, or of a "
            "workload (NAMESPACE/NAME outside the namespace default), stands for its pods. A daemon of a node and an "
            "outside host may be backends, too. NAME:PORT names one port of a pod. Without this key, too, a flow to "
            "a Service must reach one of its ready endpoints (of those that terminate and serve, where none is ready) "
            "at the target port.",
            [["echo-1", "echo-2"], ["shop/web"], ["web-1:8443"]],
        ),
    ] = None
    source: Annotated[
        SourceKey | None,
        Key(
            "The source that the backend sees: preserved for the sender's own address and port; masqueraded for the "
            "address that the node's device towards the backend gives masqueraded packets, on each flow's own way; an "
            "address; the address of a node's device; or one of the first three for each backend. Where a node sends "
            "from that address anyway, connection tracking and the rules' counters tell preserved and masqueraded "
            "apart. The port of a preserved source may change only where connection tracking shows another connection "
            "that holds it, as of one client port to two Services with the same endpoint; the verdict notes that. "
            "Required with delivered.",
            [
                "preserved",
                "masqueraded",
                "172.18.0.2",
                {"node": "node-a", "device": "uplink"},
                {"near": "10.244.0.1", "far": "172.18.0.2"},
            ],
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
    icmp: Annotated[
        IcmpError | None,
        Key(
            "The ICMP error that rejects the flows. Without this key, each error is right that the node's rule sends.",
            ["port-unreachable"],
        ),
    ] = None
    error: Annotated[
        Annotated[ErrorExpect, Read(_with_kind, ErrorKind | ErrorExpect)] | None,
        Key(
            "The ICMP error that each flow is answered by. With it, outcome may be left out: a packet that a router "
            "drops so has none of them.",
            ["too-big", {"kind": "time-exceeded", "by": "node-a"}],
        ),
    ] = None
    reply: Annotated[
        _AnyReply | None,
        Key(
            "The source address of the answer: translated for the address that was dialled, untranslated for that of "
            "the backend which the flow reached, nodePort for that of the node where a load balancer dialled its node "
            "port; lost if the backend answers and nothing comes back; none if the backend answers nothing, so that "
            "the arrival of the packet decides; or one of these for each backend.",
            ["untranslated", {"near": "untranslated", "far": "translated"}],
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
    also: Annotated[
        Also | None,
        Key(
            "promises adds each key that is not here, as Kubernetes promises it for the probe's sender, target and "
            "moment. A probe without expect is judged by all of them. Where the promises leave it open, the verdict is "
            "inconclusive, and says what to write; `proxylab expected` prints them.",
            ["promises"],
        ),
    ] = None
    proves: Proves = ()
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)
    follows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    either: tuple["Expect", ...] = ()
    undecided: str = ""

    @property
    def backend_names(self) -> tuple[str, ...]:
        """The names of ``backends``, each once; empty without that key."""
        return tuple(dict.fromkeys(each.name for each in self.backends or ()))

    @property
    def even_shares(self) -> tuple[float, ...]:
        """The shares of an even spread over ``backends``; empty without that key."""
        return (1 / len(self.backend_names),) * len(self.backend_names) if self.backends else ()

    @property
    def names_addresses(self) -> bool:
        """Whether it names addresses of the lab by names of the scenario, which the plan resolves."""
        return self.conntrack is not None or (
            self.http is not None and (self.http.source or self.http.forwarded_for) is not None
        )

    def allows_backend(self, name: str, port: int) -> bool:
        """Whether a flow may arrive at this port of this pod or host."""
        return self.backends is None or any(each.name == name and each.port in (None, port) for each in self.backends)

    def reply_from(self, backend: str) -> Reply | None:
        """What the answer of a backend must show; ``None`` where the author does not say."""
        return self.reply.of.get(backend) if isinstance(self.reply, ReplyByBackend) else self.reply


PROMISED: Final = Expect(outcome=Outcome.DELIVERED, also=Also.PROMISES, position=Position("", 1, 1))
"""Of a probe without ``expect``, until the oracle has said what must happen; the outcome means nothing then."""
