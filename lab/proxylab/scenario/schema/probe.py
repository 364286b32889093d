"""The shape of one probe. ``proxylab.scenario.flows`` looks up names."""

from pydantic import Field

from proxylab.scenario.expect import Expect
from proxylab.scenario.probes import AnyTarget, ProbeName, Send, Sender
from proxylab.scenario.reading import read_as
from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.exception import ExceptionShape

__all__ = ["ProbeShape"]


class ProbeShape(ScenarioShape):
    """One test: a sender, a target, the packets, and the expected result."""

    name: ProbeName = Field(
        description="A title that is clear on its own in a report: what the probe sends, under which setting, and what "
        "must happen. It should have at most 80 characters, and becomes the id of the test.",
        examples=["ClusterIP from a pod preserves the client IP"],
    )
    source: Sender = Field(alias="from", description="The sender: a name, or a mapping.", examples=["client"])
    target: read_as(AnyTarget) = Field(  # type: ignore[valid-type]
        alias="to", description="The target to dial.", examples=[{"service": "echo", "via": "clusterIP"}]
    )
    send: Send = Field(
        default_factory=Send,
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
