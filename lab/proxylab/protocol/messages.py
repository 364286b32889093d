"""The requests of a client and the answers of a lab process, as frozen structs.

Every ``Request`` names the class of its answer; it gets that, or ``Failed``. The lab process speaks first, once it is
in its sandbox: ``Ready``, or ``Failed`` if it cannot enter one. ``proxylab.protocol.standing_labs`` has the messages
about a detached lab.
"""

import sys
from collections.abc import Mapping
from typing import Generic, TypeVar, get_args

from msgspec import field

from proxylab.addresses import IPAddress
from proxylab.capability import Capability
from proxylab.cluster.objects import KubeObject
from proxylab.encoding import Record, TaggedRecord
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.evidence import Capture, Evidence
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.segments import DialogueRecord
from proxylab.evidence.stream_records import StepEvidence
from proxylab.mutate.objects import ObjectMutation
from proxylab.plan.dialogue import Dialogue
from proxylab.plan.model import Plan, Route, Sysctl
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.scenario.change import Change
from proxylab.scenario.steps import Until

AnswerOf = TypeVar("AnswerOf")


class Request(TaggedRecord, Generic[AnswerOf], frozen=True):
    """A request, typed by its answer. ``Failed`` may come in the answer's place."""


def answer_of(request: type[Request[AnswerOf]]) -> type[AnswerOf]:
    """The class of the answer to a request, which its declaration names: it stands further below in its module."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]  # types.get_original_bases is of Python 3.12
    (named,) = get_args(base)
    answer: type[AnswerOf] = getattr(sys.modules[request.__module__], named.__forward_arg__)
    return answer


class Build(Request["Built"], frozen=True):
    """Make ``plan`` real, run ``engine`` in its nodes and wait until the rules reflect ``objects``.

    An existing lab is replaced: the new one is built before the old one is closed. ``seed`` orders source ports, and is
    part of every payload. ``resolv_confs`` are the /etc/resolv.conf of namespaces of the plan. ``programs`` are the
    paths of the real programs in pods, by name, and ``corefile`` is the author's for CoreDNS. An embedded engine loads
    its rules with the ``mutation``. All proxies are ``shown`` the cluster and their configuration with a mutation.
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


class PodStage(Record, frozen=True, kw_only=True):
    """One stage of a rollout (``proxylab.cluster.rollout.RolloutStage``), as objects.

    ``ended`` are the pods that stop to answer before the objects change.
    """

    applied: tuple[KubeObject, ...] = ()
    deleted: tuple[KubeObject, ...] = ()
    ended: tuple[str, ...] = ()
    delay: int = 0
    grace: int | None = None


class Advance(Request["Advanced"], frozen=True, kw_only=True):
    """Make the change of one step in the lab, and wait as it says.

    Attributes:
        step: its name.
        applied: objects that are new or differ from before.
        deleted: objects as they last were.
        stages: the rollouts that follow, stage by stage.
        change: the change to engines and nodes; its objects are in ``applied`` and ``deleted``.
        until: the condition to wait for; ``None`` waits until every running engine has programmed the objects.
        streams: those that continue through the step; one that does not run yet is begun.
        addresses: of the names that ``until`` has in conditions of connection tracking.
    """

    step: str
    applied: tuple[KubeObject, ...] = ()
    deleted: tuple[KubeObject, ...] = ()
    stages: tuple[PodStage, ...] = ()
    change: Change = field(default_factory=Change)
    until: Until | None = None
    streams: tuple[ResolvedProbe, ...] = ()
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)


class Conclude(Request["Concluded"], frozen=True):
    """End the latest step: let its streams come to rest.

    With ``tables``, read the connection tracking tables then. ``metrics`` are the names of metrics to read, by node.
    """

    tables: bool = False
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class SendProbe(Request["Sent"], frozen=True):
    """Send one probe in the lab, and with ``trace`` trace its packet."""

    resolved: ResolvedProbe
    trace: bool = False


class LookUp(Request["LookedUp"], frozen=True):
    """Look up a name from a namespace of the plan. ``seconds`` bounds the wait."""

    netns_name: str
    query: Query
    seconds: float = 2.0


class Converse(Request["Conversed"], frozen=True):
    """Hold a dialogue in the lab."""

    dialogue: Dialogue


class Dump(Request["Dumped"], frozen=True):
    """Get the rules of one node as the kernel has them."""

    node: str


class Inspect(Request["Inspected"], frozen=True):
    """Get the state of the engines of all nodes."""


class CollectState(Request["CollectedState"], frozen=True):
    """Get all that the lab still has of the last probe."""


class Execute(Request["Executed"], frozen=True):
    """Run a command in a node, pod or host. ``seconds`` bounds it."""

    netns_name: str
    argv: tuple[str, ...]
    seconds: float = 30.0


class Close(Request["Closed"], frozen=True):
    """Close the lab, and check that nothing of it or of earlier ones is left."""


class Examine(Request["Examined"], frozen=True):
    """Examine this machine's capabilities for a lab: those of these names, or all."""

    names: tuple[str, ...] = ()


LabRequest = (
    Build
    | Advance
    | Conclude
    | SendProbe
    | LookUp
    | Converse
    | Dump
    | Inspect
    | CollectState
    | Execute
    | Examine
    | Close
)


class Ready(TaggedRecord, frozen=True):
    """The lab process is in its sandbox.

    Attributes:
        pid: its own pid there.
        kernel: uname's release.
        rootless: whether an ordinary user started it.
        confined: whether it is the machine's root, and its commands have no right over the machine.
        refused: why they have, where the client has not asked for that.
    """

    pid: int
    kernel: str
    rootless: bool
    confined: bool = False
    refused: str = ""


class BuildStage(Record, frozen=True):
    """How long one stage of a build took."""

    name: str
    seconds: float


class Built(TaggedRecord, frozen=True):
    """The lab is built.

    ``variant`` names the tool that programs the rules, such as ``iptables v1.8.9 (legacy)``; ``kernel`` is uname's
    release.
    """

    variant: str
    stages: tuple[BuildStage, ...] = ()
    kernel: str = ""


class Advanced(TaggedRecord, frozen=True):
    """The step is made, and its condition holds. ``seconds`` is how long both took."""

    seconds: float


class Concluded(TaggedRecord, frozen=True):
    """The evidence of a step."""

    evidence: StepEvidence


class Sent(TaggedRecord, frozen=True):
    """The evidence of a probe."""

    evidence: Evidence


class LookedUp(TaggedRecord, frozen=True):
    """The result of a look-up."""

    lookup: Lookup


class Conversed(TaggedRecord, frozen=True):
    """The evidence of a dialogue."""

    spoken: DialogueRecord


class Dumped(TaggedRecord, frozen=True):
    """A node's rules."""

    text: str


class Inspected(TaggedRecord, frozen=True):
    """The engine of each node."""

    proxies: tuple[ProxyRecord, ...]


class NodeRecord(Record, frozen=True):
    """A node after a probe: its rules with counters, its engine's log, and the current values of its sysctls.

    Engines write sysctls, too, and so may a user in the lab.
    """

    node: str
    rules: str
    log: tuple[str, ...]
    sysctls: tuple[Sysctl, ...] = ()


class CollectedState(TaggedRecord, frozen=True):
    """The frames of the last probe, all nodes after it, and the routes that balancers have made in the router."""

    capture: Capture
    nodes: tuple[NodeRecord, ...]
    balanced: tuple[Route, ...] = ()


class Executed(TaggedRecord, frozen=True):
    """How a command ended. Output that is not UTF-8 contains replacement characters."""

    status: int
    stdout: str
    stderr: str


class Closed(TaggedRecord, frozen=True):
    """There is no lab, and nothing of any is left."""


class Examined(TaggedRecord, frozen=True):
    """The machine's capabilities, present and missing."""

    capabilities: tuple[Capability, ...]


class RaisedFault(Record, frozen=True):
    """An error for the client to raise again; ``kind`` stands for its class in ``proxylab.errors``."""

    kind: str
    words: tuple[str, ...] = ()


class Failed(TaggedRecord, frozen=True):
    """The request could not be carried out."""

    fault: RaisedFault


Answer = (
    Ready
    | Built
    | Advanced
    | Concluded
    | Sent
    | LookedUp
    | Conversed
    | Dumped
    | Inspected
    | CollectedState
    | Executed
    | Examined
    | Closed
    | Failed
)
