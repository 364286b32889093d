"""Probes: from whom, to what, what is sent, and what must become of it.

Owns: the shapes of one probe.
Must not: look up names (``lab.scenario.probes`` does).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from lab.ip import Protocol
from lab.scenario.model import MOST_FLOWS, Front, Manner, Outcome, Spread
from lab.scenario.problems import describe, shown
from lab.scenario.schema.base import Between, Later, ScenarioShape, not_yet, refused, word_of
from lab.scenario.schema.syntax import Address, Name, PortNumber, PortReference, is_address

__all__ = [
    "AddressTargetShape",
    "AnyTarget",
    "Device",
    "ExpectShape",
    "HostTargetShape",
    "NodeDeviceShape",
    "PodTargetShape",
    "ProbeName",
    "ProbeShape",
    "SendShape",
    "Sender",
    "ServiceTargetShape",
    "SourceShape",
    "TargetShape",
]

MOST_PAYLOAD = 1200
_MOST_NAME = 200
_MOST_DEVICE = 15  # IFNAMSIZ of linux/if.h is 16 with its final null


_DIALLED_FRONTS = (Front.CLUSTER_IP, Front.NODE_PORT, Front.EXTERNAL_IP, Front.LOAD_BALANCER_IP)


class Device(StrEnum):
    """The device of a node whose address masquerading takes."""

    UPLINK = "uplink"
    PODS = "pods"
    OVERLAY = "overlay"


def _probe_name(text: str) -> str:
    if not text.strip() or text != text.strip() or not text.isprintable() or len(text) > _MOST_NAME:
        raise refused(
            f"{shown(text)} is not a probe's name",
            allowed=f"allowed: one line of text, {_MOST_NAME} characters at most",
        )
    if "/" in text or "::" in text:
        raise refused(f"{shown(text)} holds '/' or '::', which pytest's ids are divided by", allowed="use other words")
    return text


def _source_of_name(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise refused(f"must be a name or a mapping, is {describe(value)}")
    return value


class SourceShape(ScenarioShape):
    """Who sends."""

    name: str = Field(description="The pod or outside host that sends.")
    address: Address | None = Field(default=None, description="Which of its addresses to send from.")
    port: PortNumber | None = Field(default=None, description="A fixed source port, for a probe of one flow.")
    loopback: Later = Field(default=None, description="Whether to dial by way of the sender's loopback device.")


ProbeName = Annotated[str, AfterValidator(_probe_name)]
Sender = Annotated[SourceShape, BeforeValidator(_source_of_name, json_schema_input_type=str | SourceShape)]


class ServiceTargetShape(ScenarioShape):
    """A front of a Service."""

    service: str = Field(description="The Service, as name or namespace/name.", examples=["echo", "prod/echo"])
    namespace: Name | None = Field(default=None, description="The Service's namespace, where its name does not tell.")
    port: PortReference | None = Field(
        default=None, description="The Service's port, by name or number. Required where the Service has several."
    )
    via: Annotated[Front, BeforeValidator(word_of(Front, now=_DIALLED_FRONTS))] = Field(
        description="The front that is dialled."
    )
    node: str | None = Field(
        default=None,
        description="With nodePort, the node that is dialled; else the node that the router hands the packet to, for a "
        "probe from an outside host. Without it, the sender's own node, or for an outside host the first.",
    )
    address: Later = Field(default=None, description="Which of several addresses of the front to dial.")


class PodTargetShape(ScenarioShape):
    """A pod's own address, past all Services."""

    pod: str = Field(description="The pod.")
    port: PortReference | None = Field(
        default=None, description="The pod's port, by name or number. Required where the pod has not just one."
    )


class HostTargetShape(ScenarioShape):
    """An outside host's own address."""

    host: str = Field(description="The outside host.")
    port: PortNumber = Field(description="The port.")


class AddressTargetShape(ScenarioShape):
    """Any address."""

    address: Address = Field(description="The address that is dialled.")
    port: PortNumber = Field(description="The port.")


_TARGETS = ("service", "pod", "host", "address")


def _named_targets(value: Mapping[str, object]) -> list[str]:
    """The kinds of target that a mapping names. Beside ``service``, ``address`` says which address of the front."""
    named = [key for key in _TARGETS if key in value]
    return ["service"] if set(named) == {"service", "address"} else named


def _one_target(value: object) -> object:
    """Refuse what names no target or several, so that the tag below is always known."""
    if not isinstance(value, dict):
        raise refused(f"must be a mapping, is {describe(value)}")
    named = _named_targets(value)
    if len(named) == 1:
        return value
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


SentProtocol = Annotated[Protocol, BeforeValidator(word_of(Protocol, now=[Protocol.TCP, Protocol.UDP], later=["ICMP"]))]


class SendShape(ScenarioShape):
    """What is sent."""

    protocol: SentProtocol | None = Field(
        default=None, description="The transport protocol; without it, that of the port that is dialled."
    )
    manner: Annotated[Manner, BeforeValidator(word_of(Manner))] = Field(
        default=Manner.CONNECT,
        alias="as",
        description="connect uses the kernel's sockets, with data both ways; packet sends one crafted packet a flow.",
    )
    flows: Annotated[int, Between(1, MOST_FLOWS, "each flow has a source port of its own")] = Field(
        default=1, description="How many flows, each with its own 5-tuple."
    )
    payload: Annotated[int, Between(0, MOST_PAYLOAD, "a packet is not fragmented")] = Field(
        default=0, description="Bytes to send beyond those by which the lab knows the flow."
    )
    every: Later = Field(default=None, description="The time between two packets of a stream.")


class NodeDeviceShape(ScenarioShape):
    """The address that a node masquerades with."""

    node: str = Field(description="The node.")
    device: Annotated[Device, BeforeValidator(word_of(Device, now=[Device.UPLINK, Device.PODS]))] = Field(
        description="uplink for the node's own address, pods for the pods' gateway."
    )


def _seen_source(value: object) -> object:
    if isinstance(value, dict) or value == "preserved":
        return value
    if not isinstance(value, str):
        raise refused(f"must be preserved, an address, or {{node, device}}, is {describe(value)}")
    if not is_address(value):
        raise refused(f"{shown(value)} is neither preserved nor an address", word=value, known=["preserved"])
    return value


def _source_tag(value: Any) -> str:
    return "<device>" if isinstance(value, dict) else "<preserved>" if value == "preserved" else "<address>"


def _spread(value: object) -> object:
    if isinstance(value, dict):
        raise not_yet("a spread by shares", allowed="allowed: even")
    return value


def _at(text: str) -> str:
    node, slash, device = text.partition("/")
    if not node or (slash and (not device or len(device) > _MOST_DEVICE or "/" in device or not device.isprintable())):
        raise refused(f"{shown(text)} is not a place", allowed="allowed: NODE or NODE/DEVICE")
    return text


SeenSource = Annotated[
    Annotated[str, Tag("<preserved>")]
    | Annotated[Address, Tag("<address>")]
    | Annotated[NodeDeviceShape, Tag("<device>")],
    Discriminator(_source_tag),
    BeforeValidator(_seen_source),
]
EvenSpread = Annotated[Spread, BeforeValidator(word_of(Spread, later=["sticky"])), BeforeValidator(_spread)]


class ExpectShape(ScenarioShape):
    """What must become of every flow."""

    outcome: Annotated[
        Outcome,
        BeforeValidator(word_of(Outcome, now=[Outcome.DELIVERED, Outcome.REJECTED, Outcome.REFUSED, Outcome.DROPPED])),
    ] = Field(
        description="delivered to a backend, rejected by an ICMP error, refused by a stack's reset, or dropped without "
        "a word."
    )
    backends: list[str] | None = Field(
        default=None, min_length=1, description="The pods that must be reached: each of them, and no other."
    )
    source: SeenSource | None = Field(
        default=None,
        description="Whom the backend sees: preserved for the sender itself, an address, or a node by one of its "
        "devices. Required with delivered.",
    )
    spread: EvenSpread | None = Field(default=None, description="How the flows are shared among the backends.")
    at: Annotated[str, AfterValidator(_at)] | None = Field(
        default=None, description="Where the flow ends, as NODE or NODE/DEVICE, when it is not delivered."
    )
    reply: Later = Field(default=None, description="What the answer looks like.")
    http: Later = Field(default=None, description="What an HTTP request is answered.")
    conntrack: Later = Field(default=None, description="What the connection tracking table must hold.")


class ProbeShape(ScenarioShape):
    """One intent, and what must become of it."""

    name: ProbeName = Field(description="What is shown, in the author's words; it becomes the id of the test.")
    source: Sender = Field(alias="from", description="Who sends: a name, or a mapping.")
    target: TargetShape = Field(alias="to", description="What is dialled.")
    send: SendShape = Field(default_factory=SendShape, description="What is sent.")
    expect: ExpectShape = Field(description="What must become of it.")
    exceptions: Later = Field(default=None, alias="except", description="Where engines differ, each with the reason.")
