"""The shapes of ``expect`` and ``except``. ``proxylab.scenario.expectations`` compares their keys with each other."""

import math
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from proxylab.addresses import Transport
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.model import Outcome, Reply, Spread
from proxylab.scenario.problems import describe, shown
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.schema.matrix import ConditionShape
from proxylab.scenario.syntax import Address, PortNumber, is_address

__all__ = [
    "ConntrackShape",
    "Device",
    "EngineFailureShape",
    "EntriesShape",
    "ExceptionShape",
    "ExpectShape",
    "HttpShape",
    "NodeDeviceShape",
    "SeenSource",
]

_MOST_DEVICE = 15  # IFNAMSIZ of linux/if.h is 16 with its final null


class Device(StrEnum):
    """The device of a node that gives masqueraded packets their source address."""

    UPLINK = "uplink"
    PODS = "pods"
    OVERLAY = "overlay"


class NodeDeviceShape(ScenarioShape):
    """The source address that a node puts into masqueraded packets."""

    node: str = Field(description="The node.", examples=["node-a"])
    device: Annotated[Device, BeforeValidator(word_of(Device))] = Field(
        description="uplink for the node's own address, pods for the pods' gateway, overlay for the tunnel's.",
        examples=["uplink"],
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


SeenSource = Annotated[
    Annotated[str, Tag("<preserved>")]
    | Annotated[Address, Tag("<address>")]
    | Annotated[NodeDeviceShape, Tag("<device>")],
    Discriminator(_source_tag),
    BeforeValidator(_seen_source),
]


def _at(text: str) -> str:
    node, slash, device = text.partition("/")
    if not node or (slash and (not device or len(device) > _MOST_DEVICE or "/" in device or not device.isprintable())):
        raise refused(f"{shown(text)} does not name a node, pod or host", allowed="allowed: NAME or NAME/DEVICE")
    return text


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise refused(f"must be a share between 0 and 1, is {describe(value)}")
    return float(value)


def _whole(shares: dict[str, float]) -> dict[str, float]:
    if not math.isclose(total := math.fsum(shares.values()), 1, abs_tol=0.005):
        raise refused(f"the shares sum to {total:.3g}", allowed="they must sum to 1")
    return shares


def _spread_tag(value: Any) -> str:
    return "<shares>" if isinstance(value, dict) else "<word>"


_Shares = Annotated[
    dict[str, Annotated[float, BeforeValidator(_share, json_schema_input_type=float)]], AfterValidator(_whole)
]
AnySpread = Annotated[
    Annotated[Annotated[Spread, BeforeValidator(word_of(Spread))], Tag("<word>")] | Annotated[_Shares, Tag("<shares>")],
    Discriminator(_spread_tag),
]


def _name_or_address(value: object) -> object:
    if not isinstance(value, str):
        raise refused(f"must be a name or an address, is {describe(value)}")
    return value


NameOrAddress = Annotated[str, BeforeValidator(_name_or_address, json_schema_input_type=str)]


class HttpShape(ScenarioShape):
    """The answer to an HTTP request."""

    status: Annotated[int, Between(100, 599)] = Field(description="The status code.", examples=[200])
    local_endpoints: Annotated[int, Between(0, 100_000)] | None = Field(
        default=None, description="How many local endpoints a health-check node port reports.", examples=[2]
    )


class EntriesShape(ScenarioShape):
    """A filter for entries of the connection tracking table: an entry must match every key."""

    protocol: Annotated[Transport, BeforeValidator(word_of(Transport))] | None = Field(
        default=None,
        description="The transport protocol. The default is the probe's own, and in a step TCP, UDP and SCTP.",
        examples=["UDP"],
    )
    reply_from: NameOrAddress | None = Field(
        default=None,
        description="The source of the reply direction: a name of the scenario, or an address.",
        examples=["old"],
    )
    original_from: NameOrAddress | None = Field(
        default=None,
        description="The source of the original direction: a name of the scenario, or an address.",
        examples=["client"],
    )
    port: PortNumber | None = Field(default=None, description="The port that was dialled.", examples=[53])
    masqueraded: bool | None = Field(
        default=None,
        description="Whether the kernel replaced the sender's source address or port.",
        examples=[True],
    )


class ConntrackShape(ScenarioShape):
    """Entries that the connection tracking table must hold, and entries that it must not."""

    node: str | None = Field(
        default=None, description="The node to look at. The default is all nodes.", examples=["node-a"]
    )
    some: EntriesShape | None = Field(
        default=None, description="At least one entry must match this.", examples=[{"replyFrom": "new"}]
    )
    none: EntriesShape | None = Field(
        default=None, description="No entry may match this.", examples=[{"replyFrom": "old"}]
    )


class ExpectShape(ScenarioShape):
    """The result that every flow of the probe must have."""

    outcome: Annotated[Outcome, BeforeValidator(word_of(Outcome))] | None = Field(
        default=None,
        description="delivered to a backend; rejected by an ICMP error; refused by a network stack (a TCP reset, or "
        "ICMP port unreachable for UDP); dropped silently; or untranslated, with the destination unchanged. Required "
        "unless http is given.",
        examples=["delivered"],
    )
    backends: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The pods that the flows must reach: each of these, and no other.",
        examples=[["echo-1", "echo-2"]],
    )
    source: SeenSource | None = Field(
        default=None,
        description="The source that the backend sees: preserved for the sender's own, an address, or the address of "
        "a node's device. Required with delivered.",
        examples=["preserved", "172.18.0.2", {"node": "node-a", "device": "uplink"}],
    )
    spread: AnySpread | None = Field(
        default=None,
        description="How the flows spread over the backends: even, sticky (one backend for each client), or the share "
        "of each backend.",
        examples=["even", {"echo-1": 0.75, "echo-2": 0.25}],
    )
    at: Annotated[str, AfterValidator(_at)] | None = Field(
        default=None,
        description="Where a flow that is not delivered ends: a node, or a pod or host that received it and did not "
        "accept it. NAME/DEVICE names one device there.",
        examples=["node-a", "node-a/cni0", "echo"],
    )
    reply: Annotated[Reply, BeforeValidator(word_of(Reply))] | None = Field(
        default=None,
        description="The source address of the answer: translated for the address that was dialled, untranslated for "
        "the backend's own.",
        examples=["untranslated"],
    )
    http: HttpShape | None = Field(
        default=None,
        description="The answer that an HTTP request must get.",
        examples=[{"status": 503, "localEndpoints": 0}],
    )
    conntrack: ConntrackShape | None = Field(
        default=None,
        description="What the connection tracking table must hold.",
        examples=[{"none": {"replyFrom": "old"}}],
    )


class EngineFailureShape(ScenarioShape):
    """Engines that cannot program the scenario, and why. The lab then sends nothing and checks only the failure."""

    when: ConditionShape = Field(
        description="The cases: all these values must match.", examples=[{"mode": "nftables", "version": "<1.33.6"}]
    )
    engine_fails: str = Field(
        min_length=1,
        description="A text in the engine's last lines of output. The engine must end, or fail to load its rules, "
        "before the first probe. An engine that prints another failure, or does not fail, is an error.",
        examples=["Interface does not exist"],
    )
    because: str = Field(
        min_length=1, description="The reason; for a bug of the engine, with its number.", examples=["a known bug"]
    )


class ExceptionShape(ScenarioShape):
    """A different expectation, the cases in which it holds, and the reason."""

    when: ConditionShape = Field(description="The cases: those with all these values.", examples=[{"mode": "ipvs"}])
    expect: ExpectShape = Field(
        description="The expectation in these cases. It replaces expect as a whole.",
        examples=[{"outcome": "dropped"}],
    )
    because: str = Field(min_length=1, description="The reason.", examples=["ipvs falls back to all endpoints"])
