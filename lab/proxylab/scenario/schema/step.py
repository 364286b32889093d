"""The shapes of ``spec.steps``, except ``change`` and ``until``. ``proxylab.scenario.streams`` looks up names."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.scenario.expect import ConntrackExpect, SeenSource
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.problems import describe
from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.change import ChangeShape, UntilShape
from proxylab.scenario.schema.matrix import ConditionShape
from proxylab.scenario.schema.probe import ProbeName, ProbeShape
from proxylab.scenario.syntax import Duration, distinct

__all__ = ["CountShape", "StepExceptionShape", "StepExpectShape", "StepShape", "StreamExpectShape"]

_MOST = Between(0, 1_000_000)


class CountShape(ScenarioShape):
    """How often something may happen."""

    at_least: Annotated[int, _MOST] = Field(default=0, description="The least number.", examples=[1])
    at_most: Annotated[int, _MOST] | None = Field(default=None, description="The greatest number.", examples=[3])


def _count(value: object) -> object:
    """A plain number is an exact count."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"atLeast": value, "atMost": value}
    if not isinstance(value, dict):
        raise refused(
            f"must be a number or a mapping, is {describe(value)}", allowed="allowed: 3, or {atLeast, atMost}"
        )
    return value


def _possible(count: CountShape) -> CountShape:
    if count.at_most is not None and count.at_most < count.at_least:
        raise refused(
            f"atLeast {count.at_least} is greater than atMost {count.at_most}", allowed="swap them, or change one"
        )
    return count


AnyCount = Annotated[
    CountShape, AfterValidator(_possible), BeforeValidator(_count, json_schema_input_type=int | CountShape)
]


class StreamExpectShape(ScenarioShape):
    """What a stream must show in a step.

    A step begins with a packet of each stream just before the change. After its wait each stream sends at least five
    more packets. The step ends when every packet is answered, rejected or proven lost; then streams pause until the
    next step. So a loss counts in the step whose change causes it. TCP gets one second to retransmit what is missing at
    the end. A packet that TCP delivers in a later step stays lost, and that step shows it as late.
    """

    backend: str | None = Field(
        default=None, description="The pod that answers every packet after the step's wait.", examples=["old"]
    )
    backends: Annotated[list[str], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None,
        description="The pods that answer during the step, in the order of their first answers, and no others.",
        examples=[["old", "new"]],
    )
    source: SeenSource | None = Field(
        default=None,
        description="The source that the backend sees after the step's wait, as in a probe's expect.",
        examples=["preserved"],
    )
    lost: AnyCount | None = Field(
        default=None,
        description="How many packets of the step get no answer: a number, or bounds.",
        examples=[0, {"atLeast": 1, "atMost": 10}],
    )
    rejected: AnyCount | None = Field(
        default=None, description="How many packets get an ICMP error.", examples=[{"atLeast": 1}]
    )
    resets: AnyCount | None = Field(default=None, description="How many TCP resets the sender gets.", examples=[0])
    delay: Duration | None = Field(default=None, description="The longest that an answer may take.", examples=["200ms"])


class StepExpectShape(ScenarioShape):
    """What must hold after a change: an entry for each stream, and ``conntrack``."""

    streams: dict[str, StreamExpectShape] = Field(
        default_factory=dict, description="What each stream must show.", examples=[{"queries": {"lost": 0}}]
    )
    conntrack: ConntrackExpect | None = Field(
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
    until: UntilShape | None = Field(
        default=None,
        description="What the step waits for. The default is that every running engine has synced the change.",
        examples=[{"rules": {"node-a": "present"}, "within": "30s"}],
    )
    expect: _StepExpect = Field(
        default_factory=StepExpectShape.model_construct,
        description="What must hold: an entry for each stream, by its name, and conntrack.",
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
