"""The Scenario document, as long as nothing changes in it.

Owns: the shapes of the document's head, its metadata and its spec, but for streams and steps.
Must not: compare one part with another (``proxylab.scenario.inventory`` does), or load what only steps need: most
scenarios
have none, and are read sooner so.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.scenario.problems import shown
from proxylab.scenario.schema.base import ScenarioShape, refused, word_of
from proxylab.scenario.schema.expect import EngineFailureShape
from proxylab.scenario.schema.machines import BalancerShape, HostShape, NodeShape, PodShape
from proxylab.scenario.schema.matrix import MatrixShape
from proxylab.scenario.schema.network import NetworkShape
from proxylab.scenario.schema.probe import ProbeShape
from proxylab.scenario.schema.syntax import Name, distinct

__all__ = ["ApiVersion", "Kind", "MetadataShape", "StillDocument", "StillSpecShape"]


class ApiVersion(StrEnum):
    """The version of the format."""

    V1 = "proxylab/v1"


class Kind(StrEnum):
    """The kind of the document."""

    SCENARIO = "Scenario"


def _empty_for_null(value: object) -> object:
    """``node-a:`` with nothing behind it is a node without wishes."""
    return {} if value is None else value


def _link(text: str) -> str:
    if not text.startswith(("https://", "http://")) or not text.isprintable():
        raise refused(f"{shown(text)} is not a link", allowed="allowed: https://… or http://…")
    return text


def _tag(text: str) -> str:
    """A word that pytest takes for a marker, in ``-m 'slow and not ipv6'``."""
    if not text.isidentifier() or not text.isascii() or not text.islower():
        raise refused(f"{shown(text)} is no tag", allowed="allowed: a word of a-z, 0-9 and _, such as slow")
    return text


class MetadataShape(ScenarioShape):
    """What the scenario is called, and why it exists."""

    name: Name = Field(description="The scenario's name, as reports print it.", examples=["clusterip-from-a-pod"])
    description: str = Field(
        default="",
        description="One paragraph: what is shown here, and why it matters.",
        examples=["Whoever dials a cluster IP reaches one of its pods."],
    )
    links: list[Annotated[str, AfterValidator(_link)]] = Field(
        default_factory=list,
        description="Where the behaviour is documented, or the bug was reported.",
        examples=[["https://kubernetes.io/docs/reference/networking/virtual-ips/"]],
    )
    tags: list[Annotated[str, AfterValidator(_tag)]] = Field(
        default_factory=list,
        description="Words to choose scenarios by: `pytest -m slow`.",
        examples=[["slow"]],
    )


class StillSpecShape(ScenarioShape):
    """The cluster, and what is sent through it, where nothing changes."""

    network: NetworkShape = Field(
        default_factory=NetworkShape.model_construct,
        description="The wire and its address plan.",
        examples=[{"podNetwork": "bridge", "podCIDR": "10.1.0.0/16"}],
    )
    nodes: dict[Name, Annotated[NodeShape, BeforeValidator(_empty_for_null)]] = Field(
        min_length=1,
        description="The nodes by name; the order is the order of their addresses.",
        examples=[{"node-a": {}, "node-b": {}}],
    )
    pods: dict[Name, Annotated[PodShape, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict,
        description="The pods by name.",
        examples=[{"echo": {"replicas": 2, "labels": {"app": "echo"}, "ports": [8080]}, "client": {}}],
    )
    hosts: dict[Name, Annotated[HostShape, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict, description="The outside hosts by name.", examples=[{"outside": {}}]
    )
    load_balancers: dict[Name, BalancerShape] = Field(
        default_factory=dict,
        description="Balancers in front of the nodes, with their pools of addresses.",
        examples=[{"edge": {"pool": ["192.0.2.0/28"], "healthChecked": True}}],
    )
    manifests: Annotated[list[str], AfterValidator(distinct)] = Field(
        default_factory=list,
        description="Files with further Kubernetes manifests, by their paths from the scenario's own folder.",
        examples=[["manifests/web.yaml"]],
    )
    dns: bool = Field(
        default=False,
        description="Whether the lab has a name server behind the Service kube-dns, at the tenth address of the "
        "service network, and pods an /etc/resolv.conf that names it. It has one in any case where a probe dials a "
        "name. A Service kube-dns in kube-system that the scenario declares takes its place: the pods that it selects "
        "serve names.",
        examples=[True],
    )
    matrix: MatrixShape | None = Field(
        default=None,
        description="Axes; the scenario runs once for every combination.",
        examples=[{"families": [["IPv4"], ["IPv6"]]}],
    )
    exceptions: list[EngineFailureShape] = Field(
        default_factory=list,
        alias="except",
        description="Engines and versions that cannot program the scenario at all, each with the reason. Where one "
        "does otherwise than expected, its probes and steps say so themselves.",
        examples=[
            [
                {
                    "when": {"mode": "nftables", "version": "<1.33.6"},
                    "engineFails": "Interface does not exist",
                    "because": "it looks for a device of that name while it loads its rules",
                }
            ]
        ],
    )
    probes: list[ProbeShape] = Field(
        default_factory=list,
        description="What is sent, and what must become of it.",
        examples=[
            [
                {
                    "name": "ClusterIP from a pod preserves the client IP",
                    "from": "client",
                    "to": {"service": "echo", "via": "clusterIP"},
                    "expect": {"outcome": "delivered", "source": "preserved"},
                }
            ]
        ],
    )


class StillDocument(ScenarioShape):
    """A scenario without streams and steps."""

    api_version: Annotated[ApiVersion, BeforeValidator(word_of(ApiVersion))] = Field(
        description="The version of the format.", examples=["proxylab/v1"]
    )
    kind: Annotated[Kind, BeforeValidator(word_of(Kind))] = Field(
        description="The kind of document.", examples=["Scenario"]
    )
    metadata: MetadataShape = Field(
        description="What the scenario is called, and why it exists.", examples=[{"name": "clusterip-from-a-pod"}]
    )
    spec: StillSpecShape = Field(
        description="The cluster, and what is sent through it.", examples=[{"nodes": {"node-a": {}}}]
    )
