"""``change`` in a step: its keys, and what they do to single pods, nodes, engines, links, balancers and objects.

An author names entries of ``spec.pods``, all engines at once, and patches. ``proxylab.scenario.changes`` checks that
against the cluster's state at the step, and puts single pods, nodes and whole objects in their place.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Self

from msgspec import field

from proxylab.cluster.objects import EndpointSlice, Service, Unstructured
from proxylab.cluster.rollout import RolloutStage
from proxylab.encoding import Record
from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import Check, Declared, Key, Read, WrittenAs, refused
from proxylab.scenario.network import UPLINK, AnyNetem, Netem
from proxylab.scenario.node_engines import AnyEngineChange
from proxylab.scenario.syntax import (
    Address,
    Duration,
    Sysctls,
    TaintText,
    distinct,
    label_key_fault,
    label_value_fault,
)


class _LinkState(StrEnum):
    """The state that a step gives a link."""

    CUT = "cut"
    MENDED = "mended"


class _ObjectChange(Record, frozen=True, kw_only=True):
    """An object that is added, changed or deleted."""

    namespace: str
    name: str

    @property
    def id(self) -> tuple[str, str]:
        """The object's namespace and name."""
        return self.namespace, self.name

    @classmethod
    def of(cls, patches: Mapping[str, object]) -> tuple[Self, ...]:
        """The changes by the names that an author writes: ``NAME`` or ``NAMESPACE/NAME``."""
        full = (written if "/" in written else f"default/{written}" for written in patches)
        return tuple(
            cls(namespace=namespace, name=name) for namespace, _, name in (each.partition("/") for each in full)
        )


class ServiceChange(_ObjectChange, frozen=True, kw_only=True):
    """A Service that is added or changed. ``service`` is the whole new object, ``None`` to delete it.

    It has no allocated fields, even if the API server has allocated some for its former state.
    """

    service: Service | None = None


class SliceChange(_ObjectChange, frozen=True, kw_only=True):
    """An EndpointSlice that the author adds or changes. ``slice`` is the whole new object, ``None`` to delete it."""

    slice: EndpointSlice | None = None


class WorkloadChange(_ObjectChange, frozen=True, kw_only=True):
    """A workload that is added, changed or deleted: what the API serves, and the stages in which its pods follow.

    ``before`` and ``after`` are ``None`` where there is no such workload.
    """

    before: Unstructured | None = None
    after: Unstructured | None = None
    stages: tuple[RolloutStage, ...] = ()


class _Gratuitous(StrEnum):
    """What becomes of the gratuitous ARP by which a node announces that it answers for an address now."""

    SENT = "sent"
    LOST = "lost"


class LoadBalancerChange(Declared, frozen=True, kw_only=True):
    """Another node answers for the pool of a load balancer that a node announces."""

    announced_by: Annotated[str, Key("The node that answers from now on; the former one answers no more.", ["node-b"])]
    gratuitous_arp: Annotated[
        _Gratuitous,
        Key(
            "Whether neighbours hear of it by the new node's gratuitous ARP, or over IPv6 by its unsolicited neighbour "
            "advertisement. If it is lost, those that know the address go on sending to the former node. In a cluster "
            "they ask again within a minute, and in a lab not before it ends.",
            alias="gratuitousARP",
        ),
    ] = _Gratuitous.SENT

    @property
    def is_heard(self) -> bool:
        """Whether neighbours hear of the new node."""
        return self.gratuitous_arp is _Gratuitous.SENT


class LinkChange(Record, frozen=True, kw_only=True):
    """The new state of a link of a node, pod or host, by its device; ``eth0`` is the machine's first.

    A link that is ``up`` passes packets as ``netem`` says, or all of them.
    """

    netns_name: str
    device: str
    up: bool
    netem: Netem | None = None


class ApiFault(StrEnum):
    """What a step does to the API server that proxies watch."""

    RESTART = "restart"
    FORGET = "forget"
    PROMPT = "prompt"


class ApiServerChange(Declared, frozen=True, kw_only=True):
    """A fault of the API server that proxies watch, or its end. Text stands for an action."""

    action: Annotated[
        ApiFault | None,
        Key(
            "restart breaks all connections, and takes new ones once the step's change is made. forget ends all "
            "watches with status 410, as after a compaction of etcd, and proxies list all anew. prompt ends a delay.",
            ["restart"],
        ),
    ] = None
    delay: Annotated[Duration | None, Key("How long it holds each answer and each event back from now on.", ["2s"])] = (
        None
    )


def _with_fault(value: object) -> object:
    return {"action": value} if isinstance(value, str) else value


_AnyApiServerChange = Annotated[ApiServerChange, Read(_with_fault, ApiFault | ApiServerChange)]


def _or_null(what: str, value: object) -> object:
    if value is not None and not isinstance(value, dict):
        raise refused(f"must be a mapping, or null to delete {what}, is {describe(value)}")
    return value


def _gone_if_null(what: str) -> Callable[[object], object]:
    def read(value: object) -> object:
        return {"present": False} if _or_null(what, value) is None else value

    return read


def _text_or_null(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise refused(f"must be text, or null to remove the label, is {describe(value)}")
    return value


def _label_changes(labels: dict[str, str | None]) -> dict[str, str | None]:
    for key, value in labels.items():
        if fault := label_key_fault(key) or label_value_fault(value or ""):
            raise refused(f"{shown(key)}: {fault}")
    return labels


_LabelChanges = Annotated[Mapping[str, Annotated[str | None, Read(_text_or_null)]], Check(_label_changes)]


class PodChange(Declared, frozen=True, kw_only=True):
    """Changes of pods; a key that is absent changes nothing.

    A deleted pod keeps its network namespace and may come back.
    """

    present: Annotated[
        bool | None, Key("Whether the API knows the pods; null instead of the whole change deletes them.", [True])
    ] = None
    ready: Annotated[bool | None, Key("Whether the pods' readiness probes succeed.", [True])] = None
    serving: Annotated[bool | None, Key("Whether the pods still serve while they terminate.", [True])] = None
    terminating: Annotated[bool | None, Key("Whether the pods are being deleted.", [True])] = None
    labels: Annotated[_LabelChanges, Key("Labels to set; null removes a label.", [{"app": "echo", "track": None}])] = (
        field(default_factory=dict)
    )


class LoadFault(StrEnum):
    """What becomes of a proxy's loads of rules on a node."""

    FAIL = "fail"
    WORK = "work"


class RuleLoads(Declared, frozen=True, kw_only=True):
    """What becomes of a proxy's loads of rules on a node from now on. Text stands for an action."""

    action: Annotated[
        LoadFault | None,
        Key("fail lets each load fail, so that the rules of before stay. work ends that, and a delay.", ["fail"]),
    ] = None
    delay: Annotated[Duration | None, Key("How long each load waits before it begins.", ["2s"])] = None

    @property
    def fails(self) -> bool:
        """Whether loads fail from now on."""
        return self.action is LoadFault.FAIL


_AnyRuleLoads = Annotated[RuleLoads, Read(_with_fault, LoadFault | RuleLoads)]


class NodeChange(Declared, frozen=True, kw_only=True):
    """Changes of a node; a key that is absent changes nothing."""

    present: Annotated[
        bool | None, Key("Whether the API knows the node; null instead of the whole change deletes it.", [True])
    ] = None
    labels: Annotated[
        _LabelChanges, Key("Labels to set; null removes a label.", [{"topology.kubernetes.io/zone": "zone-b"}])
    ] = field(default_factory=dict)
    taints: Annotated[
        Annotated[tuple[TaintText, ...], Check(distinct)] | None,
        Key(
            "All taints that the node has from this step on; an empty list removes them all.",
            [["ToBeDeletedByClusterAutoscaler"]],
        ),
    ] = None
    terminating: Annotated[bool | None, Key("Whether the Node object is being deleted.", [True])] = None
    internal_ips: Annotated[
        tuple[Address, ...],
        Check(distinct),
        Key(
            "The node's own addresses from this step on, in nodeCIDR, each in place of the one of its family. The "
            "machine has them, other machines route the node's pods by them, and the Node object shows them.",
            [["172.18.0.77"]],
            alias="internalIPs",
        ),
    ] = ()
    rule_loads: Annotated[
        _AnyRuleLoads | None,
        Key(
            "What becomes of the proxy's loads of rules by nft or iptables-restore: fail, a delay, or work again. "
            "After a load that failed, a proxy retries when its syncPeriod is over.",
            ["fail", {"delay": "2s"}],
        ),
    ] = None
    sysctls: Annotated[
        Sysctls, Key("Sysctls to set in the node.", [{"net.netfilter.nf_conntrack_tcp_be_liberal": 1}])
    ] = field(default_factory=dict)


def _link_changes(states: Mapping[str, _LinkState | Netem]) -> tuple[LinkChange, ...]:
    named = ((written.partition("/"), state) for written, state in states.items())
    return tuple(
        LinkChange(
            netns_name=name,
            device=device or UPLINK,
            up=state is not _LinkState.CUT,
            netem=state if isinstance(state, Netem) else None,
        )
        for (name, _, device), state in named
    )


def _action_for_all(value: object) -> object:
    return {"": value} if isinstance(value, str) else value


def _one_file(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Patches = Mapping[str, Annotated[Mapping[str, Any] | None, Read(partial(_or_null, "an object"))]]


class Change(Declared, frozen=True, kw_only=True):
    """The changes of a step. They take effect together."""

    # Once they are checked, objects are whole, pods are single, and engines are by node.
    services: Annotated[
        tuple[ServiceChange, ...],
        WrittenAs(_Patches, ServiceChange.of),
        Key(
            "Services as NAME or NAMESPACE/NAME, each with a merge patch of its manifest (RFC 7386), as `kubectl patch "
            "--type merge` takes it: it replaces lists, and null removes a key. A new name adds a Service; null "
            "instead of a patch deletes the Service.",
            [{"echo": {"spec": {"externalTrafficPolicy": "Local"}}, "old": None}],
        ),
    ] = ()
    slices: Annotated[
        tuple[SliceChange, ...],
        WrittenAs(_Patches, SliceChange.of),
        Key(
            "EndpointSlices by name, each with a merge patch, as for services.",
            [{"echo-1": {"endpoints": [{"addresses": ["203.0.113.10"]}]}}],
            alias="endpointSlices",
        ),
    ] = ()
    workloads: Annotated[
        tuple[WorkloadChange, ...],
        WrittenAs(_Patches, WorkloadChange.of),
        Key(
            "Deployments, StatefulSets, DaemonSets and ReplicaSets by name, each with a merge patch, as for services. "
            "Their pods follow as in a cluster: a changed template is a rolling update.",
            [
                {
                    "web": {"spec": {"replicas": 5}},
                    "db": {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}},
                }
            ],
        ),
    ] = ()
    apply: Annotated[
        tuple[str, ...],
        Read(_one_file, str | list[str]),
        Check(distinct),
        Key(
            "Files of manifests, by their paths from the scenario's folder, that are applied as by `kubectl apply`: "
            "what an object's former manifest has, and its new one has not, goes. Services, EndpointSlices and "
            "workloads, whose pods follow as for the key workloads.",
            ["manifests/web-2.yaml"],
        ),
    ] = ()
    kubectl: Annotated[
        tuple[str, ...],
        Key(
            "The arguments of a kubectl that runs in the lab, for a real control plane only. The change is over when "
            "controllers have nothing left to do. Probes of this step and of later ones are judged by the cluster as "
            "it is then; the name of a workload stands for the pods that it has then.",
            [["scale", "deploy/web", "--replicas=5"]],
        ),
    ] = ()
    pods: Annotated[
        Mapping[str, Annotated[PodChange, Read(_gone_if_null("a pod"), PodChange | None)]],
        Key(
            "Entries of spec.pods, or single pods of an entry, by name. null deletes them; a later step may bring them "
            "back.",
            [{"new": {"ready": True}, "old": None, "echo-2": {"terminating": True}}],
        ),
    ] = field(default_factory=dict)
    nodes: Annotated[
        Mapping[str, Annotated[NodeChange, Read(_gone_if_null("a node"), NodeChange | None)]],
        Key(
            "Nodes by name; null deletes the Node object, but the machine goes on running. Since 1.37 kube-proxy ends "
            "when its Node goes or gets other addresses. Then it is started again at once, as by a kubelet, and waits "
            "for its Node if there is none.",
            [{"node-a": {"labels": {"topology.kubernetes.io/zone": "zone-b"}}}],
        ),
    ] = field(default_factory=dict)
    engines: Annotated[
        Mapping[str, AnyEngineChange],
        Read(_action_for_all, str | Mapping[str, AnyEngineChange]),
        Key(
            "An action on the engines: one word for the engines of all nodes, or one for each node. kill sends "
            "SIGKILL, stop lets the engine end cleanly, flush removes the rules without the engine's knowledge. pause "
            "sends SIGSTOP: the rules stay, and the engine follows nothing and answers no health check, until resume "
            "lets it go on. A proxy mode stops the engine and starts it in that mode; v1.37/nftables starts it in that "
            "version, too; a mapping may change its configuration.",
            ["restart", {"node-a": "kill"}, {"node-a": "v1.37/nftables"}],
        ),
    ] = field(default_factory=dict)
    links: Annotated[
        tuple[LinkChange, ...],
        WrittenAs(Mapping[str, _LinkState | AnyNetem], _link_changes),
        Key(
            "Links to cut or mend, by the name of a node, pod or host, or NODE/DEVICE for a further uplink of a node; "
            "or what the link does to packets from now on, as in netem. A mended link passes every packet at once.",
            [{"node-b": "cut", "node-a/eth1": "mended", "client": {"loss": "30%"}}],
        ),
    ] = ()
    api_server: Annotated[
        _AnyApiServerChange | None,
        Key(
            "A fault of the API server that proxies watch: restart, forget, or a delay, which lasts until prompt. The "
            "embedded engines read the cluster without it, so it shows only on the real kube-proxy.",
            ["restart", {"delay": "2s"}],
        ),
    ] = None
    load_balancers: Annotated[
        Mapping[str, LoadBalancerChange],
        Key(
            "Load balancers with announcedBy whose addresses another node announces from now on.",
            [{"edge": {"announcedBy": "node-b"}}, {"edge": {"announcedBy": "node-b", "gratuitousARP": "lost"}}],
        ),
    ] = field(default_factory=dict)
