"""The shape of the whole Scenario document, with streams and steps.

``proxylab.scenario.streams`` compares the parts with each other.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from proxylab.scenario.schema.base import refused
from proxylab.scenario.schema.probe import StreamShape
from proxylab.scenario.schema.scenario import StillDocument, StillSpecShape
from proxylab.scenario.schema.step import StepShape
from proxylab.scenario.schema.syntax import Name

__all__ = ["ScenarioDocument", "SpecShape"]


def _no_conntrack(streams: dict[str, Any]) -> dict[str, Any]:
    if "conntrack" in streams:
        raise refused(
            "a stream cannot be called conntrack", allowed="a step's expect uses that key for conntrack entries"
        )
    return streams


class SpecShape(StillSpecShape):
    """The cluster, its probes, and the steps that change it."""

    streams: Annotated[dict[Name, StreamShape], AfterValidator(_no_conntrack)] = Field(
        default_factory=dict,
        description="Flows by name that last through all steps.",
        examples=[
            {
                "queries": {
                    "from": {"name": "client", "port": 12345},
                    "to": {"service": "dns", "via": "clusterIP"},
                    "send": {"every": "20ms"},
                }
            }
        ],
    )
    steps: list[StepShape] = Field(
        default_factory=list,
        description="Changes of the cluster, in order.",
        examples=[[{"name": "the old pod is gone", "change": {"pods": {"old": None}}}]],
    )


class ScenarioDocument(StillDocument):
    """A scenario: a cluster, probes, expectations. Kubernetes manifests follow it in the same file."""

    spec: SpecShape = Field(
        description="The cluster, its probes, and the steps that change it.", examples=[{"nodes": {"node-a": {}}}]
    )
