"""The requests of a client and the answers of a lab process, as frozen structs.

Every ``Request`` names the type of its answer: it gets that in ``Response``, or ``Failed``. The lab process speaks
first, once it is in its sandbox: ``Ready``, or ``Failed`` if it cannot enter one. ``proxylab.protocol.standing_labs``
has the messages about a detached lab.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from msgspec import field

from proxylab.addresses import IPAddress
from proxylab.capability import Capability
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import EndpointSlice, KubeObject, Node, Pod, Service
from proxylab.encoding import Record, TaggedRecord
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.evidence import Capture, Evidence, EvidenceTogether
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.segments import DialogueRecord
from proxylab.evidence.stream_records import StepEvidence
from proxylab.evidence.timings import ChangeTimes, ConnectionTimes, StartTimes
from proxylab.mutate.objects import ObjectMutation
from proxylab.plan.dialogue import Dialogue
from proxylab.plan.model import Plan, Route, Sysctl
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.scenario.change import Change
from proxylab.scenario.steps import Until

AnswerOf = TypeVar("AnswerOf")


class Ready(TaggedRecord, frozen=True):
    """The lab process is in its sandbox.

    Attributes:
        pid: its own pid there.
        kernel: uname's release.
        rootless: whether an ordinary user started it.
        confined: whether it is the machine's root, and its commands have no right over the machine.
        refused: why they have, where the client has not asked for that.
        bounds: what bounds its commands, in words; empty where only the limits of the user do.
    """

    pid: int
    kernel: str
    rootless: bool
    confined: bool = False
    refused: str = ""
    bounds: str = ""


class BuildStage(Record, frozen=True):
    """How long one stage of a build took."""

    name: str
    seconds: float


class Built(Record, frozen=True):
    """The lab is built.

    ``variant`` names the tool that programs the rules, such as ``iptables v1.8.9 (legacy)``; ``kernel`` is uname's
    release. With ``has_kubernetes`` a real control plane runs in it, in which people make pods and Services.
    """

    variant: str
    stages: tuple[BuildStage, ...] = ()
    kernel: str = ""
    has_kubernetes: bool = False


class NodeRecord(Record, frozen=True):
    """A node after a probe: its rules with counters, its engine's log, and the current values of its sysctls.

    Engines write sysctls, too, and so may a user in the lab.
    """

    node: str
    rules: str
    log: tuple[str, ...]
    sysctls: tuple[Sysctl, ...] = ()


class PresentLab(Record, frozen=True):
    """A lab as it is now: its plan, with the pods that were added, and the objects that its API shows."""

    plan: Plan
    objects: tuple[KubeObject, ...]

    def is_alike(self, other: "PresentLab") -> bool:
        """Whether the other has the same pods, Services, endpoints and nodes."""
        own, others = (
            [thing for thing in each.objects if isinstance(thing, Pod | Service | EndpointSlice | Node)]
            for each in (self, other)
        )
        return own == others and self.plan == other.plan


class CollectedState(Record, frozen=True):
    """The frames of the last probe, all nodes after it, and the routes that balancers have made in the router."""

    capture: Capture
    nodes: tuple[NodeRecord, ...]
    balanced: tuple[Route, ...] = ()


class Executed(Record, frozen=True):
    """How a command ended. Output that is not UTF-8 contains replacement characters."""

    status: int
    stdout: str
    stderr: str


class RaisedFault(Record, frozen=True):
    """An error for the client to raise again; ``kind`` stands for its class in ``proxylab.errors``."""

    kind: str
    words: tuple[str, ...] = ()


class Failed(TaggedRecord, frozen=True):
    """The request could not be carried out."""

    fault: RaisedFault


class StillWaiting(TaggedRecord, frozen=True):
    """What a request waits for. It comes before the answer, any number of times."""

    why: str


class Request(TaggedRecord, Generic[AnswerOf], frozen=True):
    """A request, typed by its answer."""


class Response(TaggedRecord, Generic[AnswerOf], frozen=True):
    """The answer to a request. ``Failed`` may come in its place."""

    value: AnswerOf


AnyResponse = Response[Any] | Failed


def response_to(request: type[Request[Any]]) -> Any:
    """The type of what comes back for a request, by which the client decodes it."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]  # types.get_original_bases is of Python 3.12
    return Response[get_args(base)[0]] | Failed | StillWaiting  # type: ignore[misc]  # mypy knows no type that a program chooses


class Build(Request[Built], frozen=True):
    """Make ``plan`` real, run ``engine`` in its nodes and wait until the rules reflect ``objects``.

    An existing lab is replaced: the new one is built before the old one is closed. ``seed`` orders source ports, and is
    part of every payload. ``resolv_confs`` are the /etc/resolv.conf of namespaces of the plan. ``programs`` are the
    paths of the real programs in pods, by name, and ``corefile`` is the author's for CoreDNS. An embedded engine loads
    its rules with the ``mutation``. All proxies are ``shown`` the cluster and their configuration with a mutation.
    ``engines`` run in nodes that do not run ``engine``. A real control plane ``takes_over`` the workloads, unless steps
    make their rollouts. The nodes ``to_join`` are machines of the plan that its API does not know yet.
    """

    plan: Plan
    objects: tuple[KubeObject, ...]
    engine: EngineChoice
    seed: int = 0
    resolv_confs: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    corefile: str = ""
    mutation: Mutation | None = None
    shown: ObjectMutation | None = None
    engines: Mapping[str, EngineChoice] = field(default_factory=dict)
    takes_over: bool = False
    to_join: tuple[Node, ...] = ()


class PodStage(Record, frozen=True, kw_only=True):
    """One stage of a rollout (``proxylab.cluster.rollout.RolloutStage``), as objects.

    ``ended`` are the pods that stop to answer before the objects change.
    """

    applied: tuple[KubeObject, ...] = ()
    deleted: tuple[KubeObject, ...] = ()
    ended: tuple[str, ...] = ()
    delay: int = 0
    grace: int | None = None


class Advance(Request[None], frozen=True, kw_only=True):
    """Make the change of one step in the lab, and wait as it says.

    Attributes:
        step: its name.
        applied: objects that are new or differ from before.
        deleted: objects as they last were.
        stages: the rollouts that follow, stage by stage.
        change: the change to engines, nodes, links and balancers; its objects are in ``applied`` and ``deleted``.
        engines: what runs from then on in nodes that get another engine, or a configuration of their own.
        until: the condition to wait for; ``None`` waits until every running engine has programmed the objects.
        streams: those that continue through the step; one that does not run yet is begun.
        addresses: of the names that ``until`` has in conditions of connection tracking.
    """

    step: str
    applied: tuple[KubeObject, ...] = ()
    deleted: tuple[KubeObject, ...] = ()
    stages: tuple[PodStage, ...] = ()
    change: Change = field(default_factory=Change)
    engines: Mapping[str, EngineChoice] = field(default_factory=dict)
    until: Until | None = None
    streams: tuple[ResolvedProbe, ...] = ()
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)


class Conclude(Request[StepEvidence], frozen=True):
    """End the latest step: let its streams come to rest.

    With ``tables``, read the connection tracking tables then. ``metrics`` are the names of metrics to read, by node.
    """

    tables: bool = False
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class SendProbe(Request[Evidence], frozen=True):
    """Send one probe in the lab, and with ``trace`` trace its packet; gets the evidence."""

    resolved: ResolvedProbe
    trace: bool = False


class SendTogether(Request[EvidenceTogether], frozen=True):
    """Send probes of one family that have no ``question``, one after another; gets their evidence."""

    probes: tuple[ResolvedProbe, ...]


class LookUp(Request[Lookup], frozen=True):
    """Look up a name from a namespace of the plan. ``seconds`` bounds the wait."""

    netns_name: str
    query: Query
    seconds: float = 2.0


class Converse(Request[DialogueRecord], frozen=True):
    """Hold a dialogue in the lab."""

    dialogue: Dialogue


class Dump(Request[str], frozen=True):
    """Get the rules of one node as the kernel has them."""

    node: str


class Inspect(Request[tuple[ProxyRecord, ...]], frozen=True):
    """Get the state of the engines of all nodes."""


class LookAround(Request[PresentLab], frozen=True):
    """Get the lab as it is now, where a control plane adds pods to it."""


class CollectState(Request[CollectedState], frozen=True):
    """Get all that the lab still has of the last probe."""


class Execute(Request[Executed], frozen=True):
    """Run a command in a node, pod or host. ``seconds`` bounds it."""

    netns_name: str
    argv: tuple[str, ...]
    seconds: float = 30.0


class Close(Request[None], frozen=True):
    """Close the lab, and check that nothing of it or of earlier ones is left."""


class TimedPods(Record, frozen=True):
    """The pods between which connections are timed: one dials, the others listen on a port that nothing else has."""

    client: str
    servers: tuple[str, ...]
    port: int


class TimedDial(Record, frozen=True):
    """What the client dials again and again until one of these servers answers, which new rules alone lead to."""

    to: SocketAddress
    servers: tuple[str, ...]


class TimeStart(Request[StartTimes], frozen=True, kw_only=True):
    """Stop the engine of a node, flush its rules, apply objects, and time how soon a new one has programmed them."""

    node: str
    pods: TimedPods
    dial: TimedDial
    applied: tuple[KubeObject, ...] = ()


class TimedChange(Record, frozen=True):
    """Objects that change at once, and what the client dials meanwhile."""

    applied: tuple[KubeObject, ...]
    dial: TimedDial | None = None


class TimeChanges(Request[tuple[ChangeTimes, ...]], frozen=True, kw_only=True):
    """Make one change after the other, each once the engine of the node rests, and time each."""

    node: str
    pods: TimedPods
    changes: tuple[TimedChange, ...]


class TimeConnections(Request[ConnectionTimes], frozen=True, kw_only=True):
    """Connect to these addresses, one after the other, and time that."""

    pods: TimedPods
    to: tuple[SocketAddress, ...]


class Examine(Request[tuple[Capability, ...]], frozen=True):
    """Examine this machine's capabilities for a lab: those of these names, or all."""

    names: tuple[str, ...] = ()


LabRequest = (
    Build
    | Advance
    | Conclude
    | SendProbe
    | SendTogether
    | LookUp
    | Converse
    | Dump
    | Inspect
    | LookAround
    | CollectState
    | Execute
    | TimeStart
    | TimeChanges
    | TimeConnections
    | Examine
    | Close
)
