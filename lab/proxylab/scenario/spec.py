"""The Scenario document: its own keys, those of ``metadata``, and those of ``spec``.

The keys of each part of ``spec`` stand in the module from which this one imports the part's class.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from msgspec import field

from proxylab.scenario.dns import AnyDns
from proxylab.scenario.document import shown
from proxylab.scenario.keys import NOT_EMPTY, Check, Declared, Key, declared_keys, refused
from proxylab.scenario.matrix import EngineFailure, Matrix, Requirements
from proxylab.scenario.network import Network
from proxylab.scenario.node_engines import AnyNodeEngine
from proxylab.scenario.nodes import LabNode, NodePrograms
from proxylab.scenario.pods import Host, LoadBalancer, PodGroup
from proxylab.scenario.probes import Probe, Stream
from proxylab.scenario.steps import Step, StepExpect
from proxylab.scenario.syntax import Name, distinct
from proxylab.scenario.words import ControlPlaneKind


class _ApiVersion(StrEnum):
    """The version of the format."""

    V1 = "proxylab/v1"


class _Kind(StrEnum):
    """The kind of the document."""

    SCENARIO = "Scenario"


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
    for key in declared_keys(StepExpect):
        if key.alias in streams:
            what = f"a stream cannot be called {key.alias}"
            raise refused(what, allowed=f"a step's expect uses that key for {key.alias}")
    return streams


class Metadata(Declared, frozen=True, kw_only=True):
    """The scenario's name and purpose."""

    name: Annotated[Name, Key("The scenario's name, as reports print it.", ["clusterip-from-a-pod"])]
    description: Annotated[
        str,
        Key(
            "One paragraph: what the scenario shows, and why it matters.",
            ["A connection to a cluster IP reaches one of the Service's pods."],
        ),
    ] = ""
    links: Annotated[
        tuple[Annotated[str, Check(_link)], ...],
        Key(
            "Links to the documentation of the behaviour, or to the bug report.",
            [["https://kubernetes.io/docs/reference/networking/virtual-ips/"]],
        ),
    ] = ()
    tags: Annotated[
        tuple[Annotated[str, Check(_tag)], ...], Key("Words that select scenarios: `pytest -m slow`.", [["slow"]])
    ] = ()


class Spec(Declared, frozen=True, kw_only=True):
    """The cluster, its probes, and the steps that change it."""

    network: Annotated[
        Network, Key("The network and its address plan.", [{"podNetwork": "bridge", "podCIDR": "10.1.0.0/16"}])
    ] = Network()
    nodes: Annotated[
        tuple[LabNode, ...],
        NOT_EMPTY,
        Key("The nodes by name. Their order is the order of their addresses.", [{"node-a": {}, "node-b": {}}]),
    ]
    pods: Annotated[
        tuple[PodGroup, ...],
        Key("The pods by name.", [{"echo": {"replicas": 2, "labels": {"app": "echo"}, "ports": [8080]}, "client": {}}]),
    ] = ()
    hosts: Annotated[tuple[Host, ...], Key("The outside hosts by name.", [{"outside": {}}])] = ()
    load_balancers: Annotated[
        tuple[LoadBalancer, ...],
        Key(
            "Load balancers in front of the nodes, with their pools of addresses.",
            [{"edge": {"pool": ["192.0.2.0/28"], "healthChecked": True}}],
        ),
    ] = ()
    manifests: Annotated[
        tuple[str, ...],
        Check(distinct),
        Key(
            "Files with further Kubernetes manifests, by their paths from the scenario's folder.",
            [["manifests/web.yaml"]],
        ),
    ] = ()
    dns: Annotated[
        AnyDns,
        Key(
            "Whether the lab runs a name server behind the Service kube-dns, at the tenth address of the service "
            "network, and gives pods an /etc/resolv.conf that names it. A probe that dials a name turns it on. If the "
            "scenario declares a Service kube-dns in kube-system, the pods that it selects serve names instead.",
            [True, {"server": "coredns"}],
        ),
    ] = None
    control_plane: Annotated[
        ControlPlaneKind | None,
        Key(
            "What serves the cluster's API: the lab itself, or a real kube-apiserver with etcd, controllers and "
            "scheduler, whose EndpointSlices the proxies follow. By default that of the option --control-plane, which "
            "is the lab's own unless the user names another.",
            ["real"],
        ),
    ] = None
    engines: Annotated[
        Mapping[str, AnyNodeEngine],
        Key(
            "The engines of nodes that do not run the one that the user chooses, in another mode, version or "
            "configuration. A scenario for nodes of different modes names them here; steps may change them.",
            [{"node-a": "v1.34/iptables", "node-b": "kube-proxy@v1.37/nftables"}],
        ),
    ] = field(default_factory=dict)
    programs: Annotated[
        NodePrograms,
        Key(
            "Programs that the proxies run in place of the machine's own, in all nodes that name no other.",
            [{"nft": "/opt/nft-1.0.6/nft"}],
        ),
    ] = NodePrograms()
    commands: Annotated[
        tuple[str, ...],
        Check(distinct),
        Key(
            "Workloads whose pods run the command and args of each container, with this machine's files, in place of "
            "the lab's own program. Send them crafted packets (`as: packet`): only the lab's own program answers as a "
            "pod that a probe can tell from others.",
            [["web"]],
        ),
    ] = ()
    matrix: Annotated[
        Matrix,
        Key(
            "Axes. The scenario runs once for every combination of their values.", [{"families": [["IPv4"], ["IPv6"]]}]
        ),
    ] = Matrix()
    requires: Annotated[
        Requirements,
        Key(
            "What the kernel must have. On a kernel without it, the scenario is skipped. The lab finds out by itself "
            "what the engine and the network need.",
            [{"kernel": ">=6.8", "capabilities": ["IPVS"]}],
        ),
    ] = Requirements()
    exceptions: Annotated[
        tuple[EngineFailure, ...],
        Key(
            "Engines and versions that cannot program the scenario at all, each with the reason. For an engine that "
            "only behaves differently, use except in probes and steps.",
            [
                [
                    {
                        "when": {"mode": "nftables", "version": "<1.33.6"},
                        "engineFails": "Interface does not exist",
                        "because": "it looks for a device of that name while it loads its rules",
                    }
                ]
            ],
            alias="except",
        ),
    ] = ()
    probes: Annotated[
        tuple[Probe, ...],
        Key(
            "The probes, each with its expected result.",
            [
                [
                    {
                        "name": "ClusterIP from a pod preserves the client IP",
                        "from": "client",
                        "to": {"service": "echo", "via": "clusterIP"},
                        "expect": {"outcome": "delivered", "source": "preserved"},
                    }
                ]
            ],
        ),
    ] = ()
    streams: Annotated[
        tuple[Stream, ...],
        Check(_named_apart),
        Key(
            "Flows by name that last through all steps.",
            [
                {
                    "queries": {
                        "from": {"name": "client", "port": 12345},
                        "to": {"service": "dns", "via": "clusterIP"},
                        "send": {"every": "20ms"},
                    }
                }
            ],
        ),
    ] = ()
    steps: Annotated[
        tuple[Step, ...],
        Key(
            "Changes of the cluster, in order.", [[{"name": "the old pod is gone", "change": {"pods": {"old": None}}}]]
        ),
    ] = ()


class ScenarioDocument(Declared, frozen=True, kw_only=True):
    """A scenario: a cluster, probes, expectations. Kubernetes manifests follow it in the same file."""

    api_version: Annotated[_ApiVersion, Key("The version of the format.", ["proxylab/v1"])]
    kind: Annotated[_Kind, Key("The kind of document.", ["Scenario"])]
    metadata: Annotated[Metadata, Key("The scenario's name and purpose.", [{"name": "clusterip-from-a-pod"}])]
    spec: Annotated[Spec, Key("The cluster, its probes, and the steps that change it.", [{"nodes": {"node-a": {}}}])]
