"""The shapes of ``spec.steps``, except ``change`` and ``until``. ``proxylab.scenario.streams`` looks up names."""

from pydantic import Field

from proxylab.scenario.change import Change
from proxylab.scenario.probes import Probe, ProbeName
from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.steps import StepException, StepExpect, Until
from proxylab.scenario.words import Position

__all__ = ["StepShape"]


_EXAMPLE = {"queries": {"backend": "old", "lost": 0}, "conntrack": {"none": {"replyFrom": "old"}}}


class StepShape(ScenarioShape):
    """A change of the cluster, and what must hold after it.

    A deleted pod serves until the step's wait is over. Then the lab closes its connections and cuts it off.
    """

    name: ProbeName = Field(
        description="A title: what changes, and what must hold afterwards.", examples=["the new pod is ready"]
    )
    change: Change = Field(
        default_factory=Change,
        description="The changes that begin the step.",
        examples=[{"pods": {"new": {"ready": True}}}],
    )
    until: Until | None = Field(
        default=None,
        description="What the step waits for. The default is that every running engine has synced the change.",
        examples=[{"rules": {"node-a": "present"}, "within": "30s"}],
    )
    expect: StepExpect = Field(
        default_factory=lambda: StepExpect(position=Position("", 1, 1)),
        description="What must hold: an entry for each stream, by its name, and conntrack.",
        examples=[_EXAMPLE],
    )
    probes: list[Probe] = Field(
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
    exceptions: list[StepException] = Field(
        default_factory=list,
        alias="except",
        description="Different expectations for some engines, versions or cases, each with the reason.",
        examples=[[{"when": {"mode": "ipvs"}, "expect": {"queries": {"lost": 1}}, "because": "ipvs keeps the entry"}]],
    )
