"""Streams: flows that live through all steps.

Owns: the shape of ``spec.streams``.
Must not: look up names (``proxylab.scenario.streams`` does).
"""

from pydantic import Field

from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.probe import Sender, SendShape, TargetShape

__all__ = ["StreamShape"]


class StreamShape(ScenarioShape):
    """A flow that lives through all steps, a packet every so often; every loss is counted.

    Over UDP it is one 5-tuple. Over TCP it is a connection, and when that has ended another one, from a port of its own
    unless ``from`` names one. It begins with the first step, and rests while probes are sent. What it dials is what
    has that name when the lab begins.
    """

    source: Sender = Field(
        alias="from", description="Who sends: a name, or a mapping.", examples=[{"name": "client", "port": 12345}]
    )
    target: TargetShape = Field(
        alias="to", description="What is dialled.", examples=[{"service": "dns", "via": "clusterIP"}]
    )
    send: SendShape = Field(
        default_factory=SendShape.model_construct,
        description="What is sent, and how often.",
        examples=[{"protocol": "UDP", "every": "20ms", "payload": 64}],
    )
