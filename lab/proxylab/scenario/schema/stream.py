"""The shape of ``spec.streams``: flows that last through all steps. ``proxylab.scenario.streams`` looks up names."""

from pydantic import Field

from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.probe import Sender, SendShape, TargetShape

__all__ = ["StreamShape"]


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
