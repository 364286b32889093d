"""The shape of the whole Scenario document. ``proxylab.scenario.inventory`` compares its parts with each other."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.scenario.keys import refused
from proxylab.scenario.model import Host, LoadBalancer, Network, Node, PodGroup
from proxylab.scenario.problems import shown
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.schema.exception import EngineFailureShape
from proxylab.scenario.schema.matrix import MatrixShape
from proxylab.scenario.schema.probe import ProbeShape, StreamShape
from proxylab.scenario.schema.step import NOT_STREAMS, StepShape
from proxylab.scenario.syntax import Name, distinct

__all__ = ["ApiVersion", "Kind", "MetadataShape", "ScenarioDocument", "SpecShape"]


class ApiVersion(StrEnum):
    """The version of the format."""

    V1 = "proxylab/v1"


class Kind(StrEnum):
    """The kind of the document."""

    SCENARIO = "Scenario"


def _empty_for_null(value: object) -> object:
    """``node-a:`` without a value is a node with all defaults."""
    return {} if value is None else value


def _link(text: str) -> str:
    if not text.startswith(("https://", "http://")) or not text.isprintable():
        raise refused(f"{shown(text)} is not a link", allowed="allowed: https://… or http://…")
    return text


def _tag(text: str) -> str:
    """A word that pytest accepts as a marker, in ``-m 'slow and not ipv6'``."""
    if not text.isidentifier() or not text.isascii() or not text.islower():
        raise refused(f"{shown(text)} is not a tag", allowed="allowed: a word of a-z, 0-9 and _, such as slow")
    return text


def _named_apart(streams: dict[str, Any]) -> dict[str, Any]:
    for key in NOT_STREAMS:
        if key in streams:
            raise refused(f"a stream cannot be called {key}", allowed=f"a step's expect uses that key for {key}")
    return streams


class MetadataShape(ScenarioShape):
    """The scenario's name and purpose."""

    name: Name = Field(description="The scenario's name, as reports print it.", examples=["clusterip-from-a-pod"])
    description: str = Field(
        default="",
        description="One paragraph: what the scenario shows, and why it matters.",
        examples=["A connection to a cluster IP reaches one of the Service's pods."],
    )
    links: list[Annotated[str, AfterValidator(_link)]] = Field(
        default_factory=list,
        description="Links to the documentation of the behaviour, or to the bug report.",
        examples=[["https://kubernetes.io/docs/reference/networking/virtual-ips/"]],
    )
    tags: list[Annotated[str, AfterValidator(_tag)]] = Field(
        default_factory=list,
        description="Words that select scenarios: `pytest -m slow`.",
        examples=[["slow"]],
    )


class SpecShape(ScenarioShape):
    """The cluster, its probes, and the steps that change it."""

    network: Network = Field(
        default_factory=Network,
        description="The network and its address plan.",
        examples=[{"podNetwork": "bridge", "podCIDR": "10.1.0.0/16"}],
    )
    nodes: dict[Name, Annotated[Node, BeforeValidator(_empty_for_null)]] = Field(
        min_length=1,
        description="The nodes by name. Their order is the order of their addresses.",
        examples=[{"node-a": {}, "node-b": {}}],
    )
    pods: dict[Name, Annotated[PodGroup, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict,
        description="The pods by name.",
        examples=[{"echo": {"replicas": 2, "labels": {"app": "echo"}, "ports": [8080]}, "client": {}}],
    )
    hosts: dict[Name, Annotated[Host, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict, description="The outside hosts by name.", examples=[{"outside": {}}]
    )
    load_balancers: dict[Name, LoadBalancer] = Field(
        default_factory=dict,
        description="Load balancers in front of the nodes, with their pools of addresses.",
        examples=[{"edge": {"pool": ["192.0.2.0/28"], "healthChecked": True}}],
    )
    manifests: Annotated[list[str], AfterValidator(distinct)] = Field(
        default_factory=list,
        description="Files with further Kubernetes manifests, by their paths from the scenario's folder.",
        examples=[["manifests/web.yaml"]],
    )
    dns: bool = Field(
        default=False,
        description="Whether the lab runs a name server behind the Service kube-dns, at the tenth address of the "
        "service network, and gives pods an /etc/resolv.conf that names it. A probe that dials a name turns it on. If "
        "the scenario declares a Service kube-dns in kube-system, the pods that it selects serve names instead.",
        examples=[True],
    )
    matrix: MatrixShape | None = Field(
        default=None,
        description="Axes. The scenario runs once for every combination of their values.",
        examples=[{"families": [["IPv4"], ["IPv6"]]}],
    )
    exceptions: list[EngineFailureShape] = Field(
        default_factory=list,
        alias="except",
        description="Engines and versions that cannot program the scenario at all, each with the reason. For an engine "
        "that only behaves differently, use except in probes and steps.",
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
        description="The probes, each with its expected result.",
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
    streams: Annotated[dict[Name, StreamShape], AfterValidator(_named_apart)] = Field(
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


class ScenarioDocument(ScenarioShape):
    """A scenario: a cluster, probes, expectations. Kubernetes manifests follow it in the same file."""

    api_version: Annotated[ApiVersion, BeforeValidator(word_of(ApiVersion))] = Field(
        description="The version of the format.", examples=["proxylab/v1"]
    )
    kind: Annotated[Kind, BeforeValidator(word_of(Kind))] = Field(
        description="The kind of document.", examples=["Scenario"]
    )
    metadata: MetadataShape = Field(
        description="The scenario's name and purpose.", examples=[{"name": "clusterip-from-a-pod"}]
    )
    spec: SpecShape = Field(
        description="The cluster, its probes, and the steps that change it.", examples=[{"nodes": {"node-a": {}}}]
    )
