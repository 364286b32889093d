"""The shapes of ``spec.steps``, except ``change`` and ``until``. ``proxylab.scenario.streams`` looks up names."""

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from proxylab.scenario.expect import ConntrackExpect
from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.change import ChangeShape
from proxylab.scenario.schema.matrix import ConditionShape
from proxylab.scenario.schema.probe import ProbeName, ProbeShape
from proxylab.scenario.steps import Metric, StreamExpect, Until

__all__ = ["NOT_STREAMS", "StepExceptionShape", "StepExpectShape", "StepShape"]


class StepExpectShape(ScenarioShape):
    """What must hold after a change: an entry for each stream, ``conntrack``, and ``metrics``."""

    streams: dict[str, StreamExpect] = Field(
        default_factory=dict, description="What each stream must show.", examples=[{"queries": {"lost": 0}}]
    )
    conntrack: ConntrackExpect | None = Field(
        default=None,
        description="What the connection tracking table must hold.",
        examples=[{"none": {"replyFrom": "old"}}],
    )
    metrics: list[Metric] = Field(
        default_factory=list,
        description="What the engines' metrics must be.",
        examples=[[{"name": "sync_proxy_rules_no_local_endpoints_total", "node": "node-a", "value": 1}]],
    )


NOT_STREAMS: Final = ("conntrack", "metrics")
"""The keys of a step's ``expect`` that name no stream."""


def _streams_by_name(value: object) -> object:
    """``{queries: …, conntrack: …}``: every key but those of ``NOT_STREAMS`` is a stream."""
    if not isinstance(value, dict):
        return value
    streams: dict[Any, Any] = {key: inner for key, inner in value.items() if key not in NOT_STREAMS}
    return {"streams": streams, **{key: inner for key, inner in value.items() if key in NOT_STREAMS}}


_StepExpect = Annotated[StepExpectShape, BeforeValidator(_streams_by_name, json_schema_input_type=dict[str, Any])]
_EXAMPLE = {"queries": {"backend": "old", "lost": 0}, "conntrack": {"none": {"replyFrom": "old"}}}


class StepExceptionShape(ScenarioShape):
    """A different expectation, the cases in which it holds, and the reason."""

    when: ConditionShape = Field(description="The cases: those with all these values.", examples=[{"mode": "ipvs"}])
    expect: _StepExpect = Field(
        description="The expectation in these cases. It replaces expect as a whole.",
        examples=[{"queries": {"lost": 1}}],
    )
    because: str = Field(min_length=1, description="The reason.", examples=["ipvs keeps the entry"])


class StepShape(ScenarioShape):
    """A change of the cluster, and what must hold after it.

    A deleted pod serves until the step's wait is over. Then the lab closes its connections and cuts it off.
    """

    name: ProbeName = Field(
        description="A title: what changes, and what must hold afterwards.", examples=["the new pod is ready"]
    )
    change: ChangeShape = Field(
        default_factory=ChangeShape.model_construct,
        description="The changes that begin the step.",
        examples=[{"pods": {"new": {"ready": True}}}],
    )
    until: Until | None = Field(
        default=None,
        description="What the step waits for. The default is that every running engine has synced the change.",
        examples=[{"rules": {"node-a": "present"}, "within": "30s"}],
    )
    expect: _StepExpect = Field(
        default_factory=StepExpectShape.model_construct,
        description="What must hold: an entry for each stream, by its name, conntrack, and metrics.",
        examples=[_EXAMPLE],
    )
    probes: list[ProbeShape] = Field(
        default_factory=list,
        description="Probes to send after the wait. The lab sends those of spec.probes before the first step.",
        examples=[
            [
                {
                    "name": "the new pod is dialled",
                    "from": "client",
                    "to": {"service": "dns", "via": "clusterIP"},
                    "expect": {"outcome": "delivered", "source": "preserved", "backends": ["new"]},
                }
            ]
        ],
    )
    exceptions: list[StepExceptionShape] = Field(
        default_factory=list,
        alias="except",
        description="Different expectations for some engines, versions or cases, each with the reason.",
        examples=[[{"when": {"mode": "ipvs"}, "expect": {"queries": {"lost": 1}}, "because": "ipvs keeps the entry"}]],
    )
