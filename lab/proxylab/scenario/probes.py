"""``spec.probes`` and ``spec.streams``: the keys of senders, targets and packets."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.encoding import TaggedRecord
from proxylab.scenario.document import describe, shown
from proxylab.scenario.expect import PROMISED, Expect, Shares
from proxylab.scenario.keys import OWN_NAME, Between, Check, Declared, Key, Read, TaggedDeclared, refused
from proxylab.scenario.matrix import Exceptional
from proxylab.scenario.syntax import Address, Duration, Name, PortNumber, PortReference, read_address
from proxylab.scenario.words import Frontend, Manner, PodWay, Position, Spread
from proxylab.statistics import FINE_CHANGE, SHARE_CHANGE, flows_needed_for, flows_to_hit_all, flows_to_stick

MOST_FLOWS: Final = 32_000
"""The most flows of one probe. Each needs an unused source port of its own."""

STREAM_EVERY: Final = 20
"""The default time between two packets of a stream, in milliseconds."""

MOST_CONCURRENCY: Final = 64
"""The most connections of one probe that are open at once: far below the usual limit of 1,024 descriptors."""

MOST_PAYLOAD: Final = 8000
"""The most bytes after the marker of a flow."""
_MOST_NAME: Final = 200
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


class OneAddress(TaggedRecord, frozen=True):
    """``from.address: ADDRESS``: every flow leaves from this address."""

    address: IPAddress


class EachAddress(TaggedRecord, frozen=True):
    """``from.address: all``: the flows leave from each address of an outside host in turn."""


def _sends_from(value: object) -> OneAddress | EachAddress:
    return EachAddress() if value == "all" else OneAddress(read_address(value))


class Source(Declared, frozen=True, kw_only=True):
    """The sender."""

    meant: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("pod", "host", "node"), "write name: NAME, for a pod, a host or a node"
    )

    name: Annotated[str, Key("The pod, outside host or node that sends.", ["client"])]
    sends_from: Annotated[
        Annotated[OneAddress | EachAddress, Read(_sends_from, str)] | None,
        Key(
            "The address to send from. With all, the flows of an outside host leave from each of its addresses in "
            "turn, as if from many clients.",
            ["203.0.113.10", "all"],
            alias="address",
        ),
    ] = None
    port: Annotated[PortNumber | None, Key("A fixed source port, for a probe of one flow.", [12345])] = None
    loopback: Annotated[bool, Key("Whether a node dials itself from its loopback address.")] = False

    @property
    def address(self) -> IPAddress | None:
        """The address to send from; ``None`` if the kernel chooses it, or the lab for each flow."""
        return self.sends_from.address if isinstance(self.sends_from, OneAddress) else None

    @property
    def all_addresses(self) -> bool:
        """Whether the flows leave from each address of an outside host in turn."""
        return isinstance(self.sends_from, EachAddress)


def _source_of_name(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise refused(f"must be a name or a mapping, is {describe(value)}")
    return value


Sender = Annotated[Source, Read(_source_of_name, str | Source)]

_Family = Annotated[
    Family | None,
    Key("The family to dial, in a cluster that has both. The default is the target's first one.", ["IPv6"]),
]


def _request_path(text: str) -> str:
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text:
        raise refused(f"{shown(text)} is not the path of a request", allowed="allowed: a path that begins with /")
    return text


class ServiceTarget(TaggedDeclared, frozen=True, kw_only=True):
    """A frontend of a Service."""

    meant: ClassVar[Mapping[str, str]] = {
        "name": "to dial the name of a Service, write via: dnsName",
        "frontend": "write via: FRONTEND",
        "ip": "write address: ADDRESS",
        "targetPort": "write port: PORT, the Service's own; the Service says to which port that goes",
    }

    service: Annotated[str, Key("The Service, as name or namespace/name.", ["echo", "prod/echo"])]
    namespace: Annotated[Name, Key("The Service's namespace, if service does not name it.", ["prod"])] = "default"
    port: Annotated[
        PortReference | None,
        Key("The Service's port, by name or number. Required where the Service has several.", ["http", 80]),
    ] = None
    via: Annotated[
        Frontend,
        Key(
            "The frontend to dial. With dnsName the sender resolves the Service's name through kube-dns and dials an "
            "address of the answer, at the port that the Service declares: the cluster IP, or one of the pods of a "
            "headless Service. A headless Service's name must resolve to exactly its ready endpoints, or to the "
            "backends that are named. With ingress the sender makes an HTTP request to the Service of the pods with "
            "program: nginx, by its load-balancer IP, or else its node port, or else its cluster IP.",
            ["clusterIP"],
        ),
    ]
    node: Annotated[
        str | None,
        Key(
            "With nodePort, the node to dial. Otherwise the node to which the router sends the packet, for a probe "
            "from an outside host. The default is the sender's own node, or for an outside host the first.",
            ["node-a"],
        ),
    ] = None
    address: Annotated[Address | None, Key("Which of the frontend's addresses to dial.", ["198.51.100.7"])] = None
    family: _Family = None
    host: Annotated[str, Key("With ingress, the host of the HTTP request. Required there.", ["shop.example"])] = ""
    path: Annotated[str, Check(_request_path), Key("With ingress, the path of the request.", ["/cart"])] = "/"
    tls: Annotated[bool, Key("With ingress, whether to request over TLS, whose certificate must name the host.")] = (
        False
    )

    @property
    def id(self) -> tuple[str, str]:
        """The Service's namespace and name."""
        return self.namespace, self.service


class PodTarget(TaggedDeclared, frozen=True, kw_only=True):
    """A pod's own address, without a Service, or the port of its node that leads to it."""

    pod: Annotated[str, Key("The pod.", ["echo-1"])]
    via: Annotated[
        PodWay,
        Key(
            "The address to dial: podIP, the pod's own, or hostPort, the one of its node at the hostPort of the pod's "
            "port: its hostIP, or the address of the node on the nodes' segment."
        ),
    ] = PodWay.POD_IP
    port: Annotated[
        PortReference | None,
        Key("The pod's port, by name or number. Required unless the pod has exactly one.", [8080]),
    ] = None
    family: _Family = None


_PORT: Final = Key("The port. Required, except for an echo request.", [80])


class HostTarget(TaggedDeclared, frozen=True, kw_only=True):
    """An outside host's own address."""

    host: Annotated[str, Key("The outside host.", ["outside"])]
    port: Annotated[PortNumber | None, _PORT] = None
    family: _Family = None


class AddressTarget(TaggedDeclared, frozen=True, kw_only=True):
    """Any address."""

    address: Annotated[Address, Key("The address to dial.", ["203.0.113.10"])]
    port: Annotated[PortNumber | None, _PORT] = None
    path: Annotated[
        str, Check(_request_path), Key("With expect.http, the path of the request; /healthz by default.", ["/livez"])
    ] = ""


Target = ServiceTarget | PodTarget | HostTarget | AddressTarget

_TARGETS: Final = ("service", "pod", "host", "address")


def _one_target(value: object) -> object:
    """Refuse a mapping that names no target or several.

    With ``service``, ``address`` is one of the frontend's, and ``host`` belongs to a request.
    """
    if not isinstance(value, dict):
        raise refused(f"must be a mapping, is {describe(value)}")
    named = [key for key in _TARGETS if key in value]
    if len(named) == 1 or named in (["service", "address"], ["service", "host"]):
        return value
    if "name" in value and not named:
        allowed = "to dial the name of a Service, write service: NAME and via: dnsName"
        raise refused("names no target", allowed=allowed)
    what = f"names {' and '.join(named)}" if named else "names no target"
    word = "" if named else next(iter(value), "")
    raise refused(what, allowed="allowed: exactly one of service, pod, host, address", word=word, known=_TARGETS)


def _in_its_namespace(target: ServiceTarget) -> ServiceTarget:
    """``service: prod/echo`` names the namespace too."""
    namespace, slash, name = target.service.partition("/")
    return replace(target, namespace=namespace, service=name) if slash else target


AnyTarget = Annotated[
    Annotated[ServiceTarget, Check(_in_its_namespace)] | PodTarget | HostTarget | AddressTarget, Read(_one_target)
]


def _frame_to(text: str) -> str:
    if ":" in text and not _MAC.fullmatch(text):
        raise refused(f"{shown(text)} is not a MAC address", allowed="write it as 02:00:00:00:00:01, or name a machine")
    return text.lower()


class Send(Declared, frozen=True, kw_only=True):
    """The packets to send."""

    meant: ClassVar[Mapping[str, str]] = {
        "count": "write flows: NUMBER",
        "parallel": "write concurrency: NUMBER",
        "size": "write payload: BYTES",
    }

    protocol: Annotated[
        Transport | None,
        Key(
            "The transport protocol. The default is the protocol of the dialled port. ICMP (ICMPv6 for an IPv6 "
            "address) sends echo requests, which have no port and are single packets.",
            ["UDP"],
        ),
    ] = None
    manner: Annotated[
        Manner,
        Key(
            "connect uses the kernel's sockets and sends data both ways. packet sends one crafted packet per flow. "
            "either means packet where the proxy forwards, and connect where it ends connections (mode userspace). "
            "ICMP always uses packet.",
            alias="as",
        ),
    ] = Manner.CONNECT
    flows: Annotated[
        int | None,
        Between(1, MOST_FLOWS, "each flow has a source port of its own"),
        Key(
            "How many flows, each with its own 5-tuple. The default is 1, and with several backends the number that "
            "reaches each of them (31 for two, 54 for three) but by a chance of 1e-9. With an even spread, or a share "
            "for each, it is the number that shows a change of one share by 10 % where flows are packets (for two "
            "backends 8,464), and by 30 % where they are connections (941); with a sticky one, the number that hardly "
            f"all go to one backend without affinity (31 for two, 20 for three). It is at most {MOST_FLOWS:,}.",
            [2000],
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Between(1, MOST_CONCURRENCY),
        Key(
            "With connect, how many flows are under way at once, at most. With 1 the flows come one after another: "
            "each begins after both ends have closed the connection before it, or, over UDP, after its answer. What "
            "counts open connections, as some schedulers of IPVS do, sees the difference. The default is the most, "
            f"{MOST_CONCURRENCY}, and 16 for HTTP requests.",
            [1],
        ),
    ] = None
    payload: Annotated[
        int,
        Between(0, MOST_PAYLOAD),
        Key(
            "Bytes to send after the marker by which the lab recognises the flow. A datagram above the MTU leaves in "
            "fragments."
        ),
    ] = 0
    frame_to: Annotated[
        str,
        Check(_frame_to),
        Key(
            "With packet, the receiver of the Ethernet frame on the sender's own link: a node, pod or outside host, or "
            "a MAC address. The default is the next hop that routing gives.",
            ["node-a", "02:00:00:00:00:01"],
        ),
    ] = ""
    ttl: Annotated[
        Annotated[int, Between(1, 255)] | None,
        Key(
            "With packet, the time to live of the packets, over IPv6 their hop limit: each router and node that "
            "forwards one takes 1 off, and drops it at 0. The default is 64.",
            [2],
        ),
    ] = None
    dscp: Annotated[
        Annotated[int, Between(0, 63)] | None,
        Key(
            "With packet, the differentiated-services code point of the packets (DSCP), by which networks queue them. "
            "A proxy leaves it as it is. The default is 0.",
            [46],
        ),
    ] = None
    every: Annotated[Duration | None, Key("The time between two packets of a stream.", ["20ms"])] = None

    def flows_for(self, expect: Expect | None, *, names_pods: bool = False) -> int:
        """How many flows leave: without a number from the author, enough to judge what the probe expects.

        ``names_pods`` says that the probe dials the name of a headless Service, so its client picks the pod.
        """
        if self.flows is not None:
            return self.flows
        if expect is None or names_pods:
            return 1
        if expect.spread in (None, Spread.STICKY):
            backends = len(expect.backends or ())
            if backends < 2:
                return 1
            return min(flows_to_hit_all(backends) if expect.spread is None else flows_to_stick(backends), MOST_FLOWS)
        shares = tuple(expect.spread.of.values()) if isinstance(expect.spread, Shares) else expect.even_shares
        if len(shares) < 2:
            return 1
        change = SHARE_CHANGE if self.manner is Manner.CONNECT else FINE_CHANGE
        return min(flows_needed_for(shares, change), MOST_FLOWS)


def _probe_name(text: str) -> str:
    if not text.strip() or text != text.strip() or not text.isprintable() or len(text) > _MOST_NAME:
        raise refused(
            f"{shown(text)} is not a probe's name",
            allowed=f"allowed: one line of text, {_MOST_NAME} characters at most",
        )
    if "/" in text or "::" in text:
        raise refused(
            f"{shown(text)} holds '/' or '::', which separate the parts of pytest's ids", allowed="use other words"
        )
    return text


ProbeName = Annotated[str, Check(_probe_name)]


class Probe(Declared, frozen=True, kw_only=True):
    """One test: a sender, a target, the packets, and the expected result."""

    name: Annotated[
        ProbeName,
        Key(
            "A title that is clear on its own in a report: what the probe sends, under which setting, and what must "
            "happen. It should have at most 80 characters, and becomes the id of the test.",
            ["ClusterIP from a pod preserves the client IP"],
        ),
    ]
    source: Annotated[Sender, Key("The sender: a name, or a mapping.", ["client"], alias="from")]
    target: Annotated[AnyTarget, Key("The target to dial.", [{"service": "echo", "via": "clusterIP"}], alias="to")]
    send: Annotated[
        Send, Key("What to send; by default one flow, through the kernel's sockets.", [{"as": "packet", "flows": 2000}])
    ] = Send()
    expect: Annotated[
        Expect,
        Key(
            "The expected result. Without it, the probe is judged by what Kubernetes promises.",
            [{"outcome": "delivered", "source": "preserved"}, {"also": "promises"}],
        ),
    ] = PROMISED
    exceptions: Annotated[
        tuple[Exceptional, ...],
        Key(
            "Different expectations for some engines, versions or cases, each with the reason.",
            [[{"when": {"mode": "ipvs"}, "expect": {"outcome": "dropped"}, "because": "ipvs knows no such frontend"}]],
            alias="except",
        ),
    ] = ()
    position: Position


class Stream(Declared, frozen=True, kw_only=True):
    """A flow that lasts through all steps, with a packet at a fixed interval. The lab counts every loss.

    Over UDP it is one 5-tuple. Over TCP and SCTP it is a connection; when that ends, the stream opens another one, from
    a new port unless ``from`` names one. The stream begins with the first step and pauses while the lab sends probes.
    It resolves its target once, when the lab begins.
    """

    name: Annotated[Name, OWN_NAME]
    source: Annotated[
        Sender, Key("The sender: a name, or a mapping.", [{"name": "client", "port": 12345}], alias="from")
    ]
    target: Annotated[AnyTarget, Key("The target to dial.", [{"service": "dns", "via": "clusterIP"}], alias="to")]
    send: Annotated[
        Send,
        Key("The packets to send, and how often.", [{"protocol": "UDP", "every": "20ms", "payload": 64}]),
    ] = Send()
    position: Position
