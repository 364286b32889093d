"""Changes of a cluster, and what is waited for after them.

Owns: the shapes of ``change`` and ``until`` in steps.
Must not: look up names (``proxylab.scenario.streams`` does), or apply a change to anything
(``proxylab.scenario.updates`` does).
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.scenario.problems import describe, shown
from proxylab.scenario.schema.base import ScenarioShape, refused, word_of
from proxylab.scenario.schema.expect import ConntrackShape
from proxylab.scenario.schema.syntax import Duration, Sysctls, TaintKey, distinct, label_key_fault, label_value_fault
from proxylab.scenario.steps import DEADLINE, EngineAction, EngineState, RulesState

__all__ = ["ChangeShape", "LinkState", "NodeChangeShape", "PodChangeShape", "UntilShape"]


class LinkState(StrEnum):
    """What becomes of a link."""

    CUT = "cut"
    MENDED = "mended"


def _label_changes(labels: dict[str, str | None]) -> dict[str, str | None]:
    for key, value in labels.items():
        if fault := label_key_fault(key) or label_value_fault(value or ""):
            raise refused(f"{shown(key)}: {fault}")
    return labels


def _text_or_null(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise refused(f"must be text, or null for a label that is taken off, is {describe(value)}")
    return value


LabelChanges = Annotated[
    dict[str, Annotated[str | None, BeforeValidator(_text_or_null)]], AfterValidator(_label_changes)
]


class PodChangeShape(ScenarioShape):
    """What becomes of pods; what is not said stays as it is."""

    present: bool | None = Field(
        default=None, description="Whether the API knows them; null for the whole change deletes them.", examples=[True]
    )
    ready: bool | None = Field(default=None, description="Whether their readiness probes succeed.", examples=[True])
    serving: bool | None = Field(
        default=None, description="Whether they still serve while they terminate.", examples=[True]
    )
    terminating: bool | None = Field(default=None, description="Whether they are being deleted.", examples=[True])
    labels: LabelChanges = Field(
        default_factory=dict,
        description="Labels that they get; null takes one off.",
        examples=[{"app": "echo", "track": None}],
    )


class NodeChangeShape(ScenarioShape):
    """What becomes of a node; what is not said stays as it is."""

    present: bool | None = Field(
        default=None,
        description="Whether the API knows the node; null for the whole change deletes it.",
        examples=[True],
    )
    labels: LabelChanges = Field(
        default_factory=dict,
        description="Labels that it gets; null takes one off.",
        examples=[{"topology.kubernetes.io/zone": "zone-b"}],
    )
    taints: Annotated[list[TaintKey], AfterValidator(distinct)] | None = Field(
        default=None,
        description="Keys of all taints that it has from now on; an empty list takes them off.",
        examples=[["ToBeDeletedByClusterAutoscaler"]],
    )
    terminating: bool | None = Field(
        default=None, description="Whether the Node object is being deleted.", examples=[True]
    )
    sysctls: Sysctls = Field(
        default_factory=dict,
        description="Sysctls to set in the node.",
        examples=[{"net.netfilter.nf_conntrack_tcp_be_liberal": 1}],
    )


def _mapping_or_null(what: str) -> BeforeValidator:
    def validate(value: object) -> object:
        if value is None or isinstance(value, dict):
            return value
        raise refused(f"must be a mapping, or null for {what} that is deleted, is {describe(value)}")

    return BeforeValidator(validate)


def _action_for_all(value: object) -> object:
    return {"": value} if isinstance(value, str) else value


_Action = Annotated[EngineAction, BeforeValidator(word_of(EngineAction))]
_Patch = Annotated[dict[str, Any] | None, _mapping_or_null("an object")]


class ChangeShape(ScenarioShape):
    """What changes in a step, all at once."""

    services: dict[str, _Patch] = Field(
        default_factory=dict,
        description="Services as NAME or NAMESPACE/NAME, each with a merge patch of its manifest (RFC 7386), as "
        "`kubectl patch --type merge` takes it: lists are replaced, null removes a key. A name that is not there yet "
        "adds a Service, null instead of a patch deletes it.",
        examples=[{"echo": {"spec": {"externalTrafficPolicy": "Local"}}, "old": None}],
    )
    endpoint_slices: dict[str, _Patch] = Field(
        default_factory=dict,
        description="EndpointSlices that the author gives, in the same way as services.",
        examples=[{"echo-1": {"endpoints": [{"addresses": ["203.0.113.10"]}]}}],
    )
    pods: dict[str, Annotated[PodChangeShape | None, _mapping_or_null("a pod")]] = Field(
        default_factory=dict,
        description="Entries of spec.pods, or single pods of them, by name; null deletes them, and a later step may "
        "bring them back.",
        examples=[{"new": {"ready": True}, "old": None, "echo-2": {"terminating": True}}],
    )
    nodes: dict[str, Annotated[NodeChangeShape | None, _mapping_or_null("a node")]] = Field(
        default_factory=dict,
        description="Nodes by name; null deletes the Node object, while the machine goes on.",
        examples=[{"node-a": {"labels": {"topology.kubernetes.io/zone": "zone-b"}}}],
    )
    engines: Annotated[
        dict[str, _Action],
        BeforeValidator(_action_for_all, json_schema_input_type=EngineAction | dict[str, EngineAction]),
    ] = Field(
        default_factory=dict,
        description="What is done to the engines: one word for those of all nodes, or a word a node. kill is SIGKILL, "
        "stop is in good order, flush removes the rules behind the engine's back.",
        examples=["restart", {"node-a": "kill"}],
    )
    links: dict[str, Annotated[LinkState, BeforeValidator(word_of(LinkState))]] = Field(
        default_factory=dict,
        description="Links that are cut or mended: that of a node, pod or host by its name, or NODE/DEVICE for another "
        "uplink of a node.",
        examples=[{"node-b": "cut", "node-a/eth1": "mended"}],
    )


class UntilShape(ScenarioShape):
    """What a step waits for before anything is judged: all of this."""

    engines: dict[str, Annotated[EngineState, BeforeValidator(word_of(EngineState))]] = Field(
        default_factory=dict,
        description="The state that the engines of nodes must come to: synced, or stopped.",
        examples=[{"node-a": "synced", "node-b": "stopped"}],
    )
    rules: dict[str, Annotated[RulesState, BeforeValidator(word_of(RulesState))]] = Field(
        default_factory=dict,
        description="Whether the engine's rules must be in a node's kernel.",
        examples=[{"node-a": "present"}],
    )
    conntrack: ConntrackShape | None = Field(
        default=None, description="What connection tracking must hold.", examples=[{"none": {"replyFrom": "old"}}]
    )
    balancers: dict[str, Annotated[list[str], AfterValidator(distinct)]] = Field(
        default_factory=dict,
        description="The nodes that a load balancer sends to, and no others.",
        examples=[{"edge": ["node-b"]}],
    )
    backends: dict[str, str] = Field(
        default_factory=dict,
        description="The pod that answers a packet of a stream that was sent behind the change.",
        examples=[{"queries": "new"}],
    )
    elapsed: Duration | None = Field(
        default=None, description="A time that passes in any case, where a timeout is the subject.", examples=["12s"]
    )
    within: Duration = Field(
        default=DEADLINE, description="The deadline; what is not there then fails the step.", examples=["30s"]
    )
