"""Streams, and the steps they live through.

Owns: the shapes of ``spec.streams`` and ``spec.steps``.
Must not: look up names (``lab.scenario.streams`` does).
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lab.scenario.problems import describe
from lab.scenario.schema.base import Between, ScenarioShape, refused
from lab.scenario.schema.expect import ConntrackShape
from lab.scenario.schema.probe import ProbeName, Sender, SendShape, TargetShape

__all__ = ["ChangeShape", "PodChangeShape", "StepExpectShape", "StepShape", "StreamExpectShape", "StreamShape"]


class StreamShape(ScenarioShape):
    """One 5-tuple that lives through all steps; every loss is counted."""

    source: Sender = Field(
        alias="from", description="Who sends: a name, or a mapping.", examples=[{"name": "client", "port": 12345}]
    )
    target: TargetShape = Field(
        alias="to", description="What is dialled.", examples=[{"service": "dns", "via": "clusterIP"}]
    )
    send: SendShape = Field(
        default_factory=SendShape,
        description="What is sent, and how often.",
        examples=[{"protocol": "UDP", "every": "20ms", "payload": 64}],
    )


class PodChangeShape(ScenarioShape):
    """What becomes of the pods of an entry; what is not said stays as it is."""

    ready: bool | None = Field(default=None, description="Whether their readiness probes succeed.", examples=[True])
    serving: bool | None = Field(
        default=None, description="Whether they still serve while they terminate.", examples=[True]
    )
    terminating: bool | None = Field(default=None, description="Whether they are being deleted.", examples=[True])


def _mapping_or_null(value: object) -> object:
    if value is None or isinstance(value, dict):
        return value
    raise refused(f"must be a mapping, or null for pods that are gone, is {describe(value)}")


class ChangeShape(ScenarioShape):
    """What changes in a step."""

    pods: dict[str, Annotated[PodChangeShape | None, BeforeValidator(_mapping_or_null)]] = Field(
        default_factory=dict,
        description="Entries of pods by name; null deletes them.",
        examples=[{"new": {"ready": True}, "old": None}],
    )


class StreamExpectShape(ScenarioShape):
    """What a stream must show during a step."""

    backend: str | None = Field(default=None, description="The pod that answers.", examples=["old"])
    lost: Annotated[int, Between(0, 1_000_000)] | None = Field(
        default=None, description="How many packets stay unanswered.", examples=[0]
    )


class StepExpectShape(ScenarioShape):
    """What must hold after a change: an entry for each stream, and conntrack."""

    streams: dict[str, StreamExpectShape] = Field(
        default_factory=dict, description="What each stream must show.", examples=[{"queries": {"lost": 0}}]
    )
    conntrack: ConntrackShape | None = Field(
        default=None,
        description="What the connection tracking table must hold.",
        examples=[{"none": {"replyFrom": "old"}}],
    )


def _streams_by_name(value: object) -> object:
    """``{queries: …, conntrack: …}``: every key but ``conntrack`` is a stream."""
    if not isinstance(value, dict):
        return value
    streams: dict[Any, Any] = {key: inner for key, inner in value.items() if key != "conntrack"}
    return {"streams": streams, **{key: inner for key, inner in value.items() if key == "conntrack"}}


class StepShape(ScenarioShape):
    """A change of the cluster, and what must hold after it."""

    name: ProbeName = Field(description="What is shown, in the author's words.", examples=["the new pod is ready"])
    change: ChangeShape = Field(
        default_factory=ChangeShape,
        description="What changes, before the step.",
        examples=[{"pods": {"new": {"ready": True}}}],
    )
    expect: Annotated[StepExpectShape, BeforeValidator(_streams_by_name, json_schema_input_type=dict[str, Any])] = (
        Field(
            default_factory=StepExpectShape,
            description="What must hold: an entry for each stream by its name, and conntrack.",
            examples=[{"queries": {"backend": "old", "lost": 0}, "conntrack": {"none": {"replyFrom": "old"}}}],
        )
    )
