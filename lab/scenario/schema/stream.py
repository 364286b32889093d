"""Streams: flows that live through all steps.

Owns: the shape of ``spec.streams``.
Must not: look up names (``lab.scenario.streams`` does).
"""

from pydantic import Field

from lab.scenario.schema.base import ScenarioShape
from lab.scenario.schema.probe import Sender, SendShape, TargetShape

__all__ = ["StreamShape"]


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
