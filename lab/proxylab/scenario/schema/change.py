"""The shapes of ``change`` and ``until`` in steps.

``proxylab.scenario.streams`` looks up the names in them, ``proxylab.scenario.updates`` applies the changes.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.scenario.keys import refused
from proxylab.scenario.problems import describe, shown
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.steps import EngineAction
from proxylab.scenario.syntax import Sysctls, TaintKey, distinct, label_key_fault, label_value_fault

__all__ = ["ChangeShape", "LinkState", "NodeChangeShape", "PodChangeShape"]


class LinkState(StrEnum):
    """The state that a step gives a link."""

    CUT = "cut"
    MENDED = "mended"


def _label_changes(labels: dict[str, str | None]) -> dict[str, str | None]:
    for key, value in labels.items():
        if fault := label_key_fault(key) or label_value_fault(value or ""):
            raise refused(f"{shown(key)}: {fault}")
    return labels


def _text_or_null(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise refused(f"must be text, or null to remove the label, is {describe(value)}")
    return value


LabelChanges = Annotated[
    dict[str, Annotated[str | None, BeforeValidator(_text_or_null)]], AfterValidator(_label_changes)
]


class PodChangeShape(ScenarioShape):
    """Changes of pods; a key that is absent changes nothing."""

    present: bool | None = Field(
        default=None,
        description="Whether the API knows the pods; null instead of the whole change deletes them.",
        examples=[True],
    )
    ready: bool | None = Field(default=None, description="Whether the pods' readiness probes succeed.", examples=[True])
    serving: bool | None = Field(
        default=None, description="Whether the pods still serve while they terminate.", examples=[True]
    )
    terminating: bool | None = Field(default=None, description="Whether the pods are being deleted.", examples=[True])
    labels: LabelChanges = Field(
        default_factory=dict,
        description="Labels to set; null removes a label.",
        examples=[{"app": "echo", "track": None}],
    )


class NodeChangeShape(ScenarioShape):
    """Changes of a node; a key that is absent changes nothing."""

    present: bool | None = Field(
        default=None,
        description="Whether the API knows the node; null instead of the whole change deletes it.",
        examples=[True],
    )
    labels: LabelChanges = Field(
        default_factory=dict,
        description="Labels to set; null removes a label.",
        examples=[{"topology.kubernetes.io/zone": "zone-b"}],
    )
    taints: Annotated[list[TaintKey], AfterValidator(distinct)] | None = Field(
        default=None,
        description="Keys of all taints that the node has from this step on; an empty list removes them all.",
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
        raise refused(f"must be a mapping, or null to delete {what}, is {describe(value)}")

    return BeforeValidator(validate)


def _action_for_all(value: object) -> object:
    return {"": value} if isinstance(value, str) else value


_Action = Annotated[EngineAction, BeforeValidator(word_of(EngineAction))]
_Patch = Annotated[dict[str, Any] | None, _mapping_or_null("an object")]


class ChangeShape(ScenarioShape):
    """The changes of a step. They take effect together."""

    services: dict[str, _Patch] = Field(
        default_factory=dict,
        description="Services as NAME or NAMESPACE/NAME, each with a merge patch of its manifest (RFC 7386), as "
        "`kubectl patch --type merge` takes it: it replaces lists, and null removes a key. A new name adds a Service; "
        "null instead of a patch deletes the Service.",
        examples=[{"echo": {"spec": {"externalTrafficPolicy": "Local"}}, "old": None}],
    )
    endpoint_slices: dict[str, _Patch] = Field(
        default_factory=dict,
        description="EndpointSlices by name, each with a merge patch, as for services.",
        examples=[{"echo-1": {"endpoints": [{"addresses": ["203.0.113.10"]}]}}],
    )
    pods: dict[str, Annotated[PodChangeShape | None, _mapping_or_null("a pod")]] = Field(
        default_factory=dict,
        description="Entries of spec.pods, or single pods of an entry, by name. null deletes them; a later step may "
        "bring them back.",
        examples=[{"new": {"ready": True}, "old": None, "echo-2": {"terminating": True}}],
    )
    nodes: dict[str, Annotated[NodeChangeShape | None, _mapping_or_null("a node")]] = Field(
        default_factory=dict,
        description="Nodes by name; null deletes the Node object, but the machine goes on running.",
        examples=[{"node-a": {"labels": {"topology.kubernetes.io/zone": "zone-b"}}}],
    )
    engines: Annotated[
        dict[str, _Action],
        BeforeValidator(_action_for_all, json_schema_input_type=EngineAction | dict[str, EngineAction]),
    ] = Field(
        default_factory=dict,
        description="An action on the engines: one word for the engines of all nodes, or one word for each node. kill "
        "sends SIGKILL, stop lets the engine end cleanly, flush removes the rules without the engine's knowledge. A "
        "proxy mode stops the engine and starts it in that mode.",
        examples=["restart", {"node-a": "kill"}, {"node-a": "nftables"}],
    )
    links: dict[str, Annotated[LinkState, BeforeValidator(word_of(LinkState))]] = Field(
        default_factory=dict,
        description="Links to cut or mend, by the name of a node, pod or host, or NODE/DEVICE for a further uplink of "
        "a node.",
        examples=[{"node-b": "cut", "node-a/eth1": "mended"}],
    )
