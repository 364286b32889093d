"""The shapes of one probe, except its expectation: sender, target, and the packets.

``proxylab.scenario.probes`` looks up names.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.model import MOST_FLOWS, Frontend, Manner
from proxylab.scenario.problems import describe, shown
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.schema.exception import ExceptionShape
from proxylab.scenario.syntax import Address, Duration, Name, PortNumber, PortReference, read_address

__all__ = [
    "AddressTargetShape",
    "AnyTarget",
    "HostTargetShape",
    "PodTargetShape",
    "ProbeName",
    "ProbeShape",
    "SendShape",
    "Sender",
    "ServiceTargetShape",
    "SourceShape",
    "StreamShape",
    "TargetShape",
]

MOST_PAYLOAD = 8000
_MOST_NAME = 200
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


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


def _source_of_name(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise refused(f"must be a name or a mapping, is {describe(value)}")
    return value


def _one_or_all(value: object) -> object:
    return value if value == "all" else read_address(value)


FamilyWord = Annotated[Family, BeforeValidator(word_of(Family))]
_FAMILY = "The family to dial, in a cluster that has both. The default is the target's first one."
SendersAddress = Annotated[IPAddress | Literal["all"], BeforeValidator(_one_or_all, json_schema_input_type=str)]


class SourceShape(ScenarioShape):
    """The sender."""

    name: str = Field(description="The pod, outside host or node that sends.", examples=["client"])
    address: SendersAddress | None = Field(
        default=None,
        description="The address to send from. With all, the flows of an outside host leave from each of its addresses "
        "in turn, as if from many clients.",
        examples=["203.0.113.10", "all"],
    )
    port: PortNumber | None = Field(
        default=None, description="A fixed source port, for a probe of one flow.", examples=[12345]
    )
    loopback: bool = Field(default=False, description="Whether a node dials itself from its loopback address.")


def _frame_target(text: str) -> str:
    if ":" in text and not _MAC.fullmatch(text):
        raise refused(f"{shown(text)} is not a MAC address", allowed="write it as 02:00:00:00:00:01, or name a machine")
    return text


FrameTarget = Annotated[str, AfterValidator(_frame_target)]
ProbeName = Annotated[str, AfterValidator(_probe_name)]
Sender = Annotated[SourceShape, BeforeValidator(_source_of_name, json_schema_input_type=str | SourceShape)]


class ServiceTargetShape(ScenarioShape):
    """A frontend of a Service."""

    meant: ClassVar[Mapping[str, str]] = {"name": "to dial the name of a Service, write via: dnsName"}

    service: str = Field(description="The Service, as name or namespace/name.", examples=["echo", "prod/echo"])
    namespace: Name | None = Field(
        default=None, description="The Service's namespace, if service does not name it.", examples=["prod"]
    )
    port: PortReference | None = Field(
        default=None,
        description="The Service's port, by name or number. Required where the Service has several.",
        examples=["http", 80],
    )
    via: Annotated[Frontend, BeforeValidator(word_of(Frontend))] = Field(
        description="The frontend to dial. With dnsName the sender resolves the Service's name through kube-dns and "
        "dials an address of the answer, at the port that the Service declares: the cluster IP, or one of the pods of "
        "a headless Service. A headless Service's name must resolve to exactly the backends.",
        examples=["clusterIP"],
    )
    node: str | None = Field(
        default=None,
        description="With nodePort, the node to dial. Otherwise the node to which the router sends the packet, for a "
        "probe from an outside host. The default is the sender's own node, or for an outside host the first.",
        examples=["node-a"],
    )
    address: Address | None = Field(
        default=None, description="Which of the frontend's addresses to dial.", examples=["198.51.100.7"]
    )
    family: FamilyWord | None = Field(default=None, description=_FAMILY, examples=["IPv6"])


class PodTargetShape(ScenarioShape):
    """A pod's own address, without a Service."""

    pod: str = Field(description="The pod.", examples=["echo-1"])
    port: PortReference | None = Field(
        default=None,
        description="The pod's port, by name or number. Required unless the pod has exactly one.",
        examples=[8080],
    )
    family: FamilyWord | None = Field(default=None, description=_FAMILY, examples=["IPv6"])


class HostTargetShape(ScenarioShape):
    """An outside host's own address."""

    host: str = Field(description="The outside host.", examples=["outside"])
    port: PortNumber | None = Field(
        default=None, description="The port. Required, except for an echo request.", examples=[53]
    )
    family: FamilyWord | None = Field(default=None, description=_FAMILY, examples=["IPv6"])


class AddressTargetShape(ScenarioShape):
    """Any address."""

    address: Address = Field(description="The address to dial.", examples=["203.0.113.10"])
    port: PortNumber | None = Field(
        default=None, description="The port. Required, except for an echo request.", examples=[80]
    )


_TARGETS = ("service", "pod", "host", "address")


def _named_targets(value: Mapping[str, object]) -> list[str]:
    """The kinds of target that a mapping names. With ``service``, ``address`` is an address of the frontend."""
    named = [key for key in _TARGETS if key in value]
    return ["service"] if set(named) == {"service", "address"} else named


def _one_target(value: object) -> object:
    """Refuse a mapping that names no target or several, so that the tag below is always known."""
    if not isinstance(value, dict):
        raise refused(f"must be a mapping, is {describe(value)}")
    named = _named_targets(value)
    if len(named) == 1:
        return value
    if "name" in value and not named:
        allowed = "to dial the name of a Service, write service: NAME and via: dnsName"
        raise refused("names no target", allowed=allowed)
    what = f"names {' and '.join(named)}" if named else "names no target"
    word = "" if named else next(iter(value), "")
    raise refused(what, allowed="allowed: exactly one of service, pod, host, address", word=word, known=_TARGETS)


def _target_tag(value: Any) -> str:
    return f"<{_named_targets(value)[0]}>"


AnyTarget = ServiceTargetShape | PodTargetShape | HostTargetShape | AddressTargetShape
TargetShape = Annotated[
    Annotated[ServiceTargetShape, Tag("<service>")]
    | Annotated[PodTargetShape, Tag("<pod>")]
    | Annotated[HostTargetShape, Tag("<host>")]
    | Annotated[AddressTargetShape, Tag("<address>")],
    Discriminator(_target_tag),
    BeforeValidator(_one_target),
]


class SendShape(ScenarioShape):
    """The packets to send."""

    protocol: Annotated[Transport, BeforeValidator(word_of(Transport))] | None = Field(
        default=None,
        description="The transport protocol. The default is the protocol of the dialled port. ICMP (ICMPv6 for an IPv6 "
        "address) sends echo requests, which have no port and are single packets.",
        examples=["UDP"],
    )
    manner: Annotated[Manner, BeforeValidator(word_of(Manner))] = Field(
        default=Manner.CONNECT,
        alias="as",
        description="connect uses the kernel's sockets and sends data both ways. packet sends one crafted packet per "
        "flow. either means packet where the proxy forwards, and connect where it ends connections (mode userspace). "
        "ICMP always uses packet.",
    )
    flows: Annotated[int, Between(1, MOST_FLOWS, "each flow has a source port of its own")] = Field(
        default=1, description="How many flows, each with its own 5-tuple."
    )
    payload: Annotated[int, Between(0, MOST_PAYLOAD)] = Field(
        default=0,
        description="Bytes to send after the marker by which the lab recognises the flow. A datagram above the MTU "
        "leaves in fragments.",
    )
    frame_to: FrameTarget | None = Field(
        default=None,
        description="With packet, the receiver of the Ethernet frame on the sender's own link: a node, pod or outside "
        "host, or a MAC address. The default is the next hop that routing gives.",
        examples=["node-a", "02:00:00:00:00:01"],
    )
    every: Duration | None = Field(
        default=None, description="The time between two packets of a stream.", examples=["20ms"]
    )


class ProbeShape(ScenarioShape):
    """One test: a sender, a target, the packets, and the expected result."""

    name: ProbeName = Field(
        description="A title that is clear on its own in a report: what the probe sends, under which setting, and what "
        "must happen. It should have at most 80 characters, and becomes the id of the test.",
        examples=["ClusterIP from a pod preserves the client IP"],
    )
    source: Sender = Field(alias="from", description="The sender: a name, or a mapping.", examples=["client"])
    target: TargetShape = Field(
        alias="to", description="The target to dial.", examples=[{"service": "echo", "via": "clusterIP"}]
    )
    send: SendShape = Field(
        default_factory=SendShape.model_construct,
        description="The packets to send.",
        examples=[{"as": "packet", "flows": 2000}],
    )
    expect: Expect = Field(
        description="The expected result.", examples=[{"outcome": "delivered", "source": "preserved"}]
    )
    exceptions: list[ExceptionShape] = Field(
        default_factory=list,
        alias="except",
        description="Different expectations for some engines, versions or cases, each with the reason.",
        examples=[
            [{"when": {"mode": "ipvs"}, "expect": {"outcome": "dropped"}, "because": "ipvs knows no such frontend"}]
        ],
    )


class StreamShape(ScenarioShape):
    """A flow that lasts through all steps, with a packet at a fixed interval. The lab counts every loss.

    Over UDP it is one 5-tuple. Over TCP it is a connection; when that ends, the stream opens another one, from a new
    port unless ``from`` names one. The stream begins with the first step and pauses while the lab sends probes. It
    resolves its target once, when the lab begins.
    """

    source: Sender = Field(
        alias="from", description="The sender: a name, or a mapping.", examples=[{"name": "client", "port": 12345}]
    )
    target: TargetShape = Field(
        alias="to", description="The target to dial.", examples=[{"service": "dns", "via": "clusterIP"}]
    )
    send: SendShape = Field(
        default_factory=SendShape.model_construct,
        description="The packets to send, and how often.",
        examples=[{"protocol": "UDP", "every": "20ms", "payload": 64}],
    )
