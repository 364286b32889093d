"""The requests of a client and the answers of a lab process, as frozen dataclasses that ``codec`` can encode.

Every request gets the answer that its docstring names, or ``Failed``. The lab process speaks first, once it is in its
sandbox: ``Ready``, or ``Failed`` if it cannot enter one. ``proxylab.protocol.standing_labs`` has the messages about a
detached lab.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.capability import Capability
from proxylab.cluster.objects import KubeObject
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.evidence import Capture, Evidence, Lookup
from proxylab.evidence.segments import Spoken
from proxylab.evidence.streams import StepEvidence
from proxylab.frozen import dataclass
from proxylab.plan.dialogue import Dialogue
from proxylab.plan.model import Plan, Route, Sysctl
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.scenario.model import Change, Until

__all__ = [
    "LAUNCHER_ENDED",
    "Advance",
    "Advanced",
    "Answer",
    "Build",
    "Built",
    "Close",
    "Closed",
    "CollectState",
    "CollectedState",
    "Conclude",
    "Concluded",
    "Converse",
    "Conversed",
    "Dump",
    "Dumped",
    "Examine",
    "Examined",
    "Execute",
    "Executed",
    "Failed",
    "Fault",
    "Inspect",
    "Inspected",
    "LookUp",
    "LookedUp",
    "NodeRecord",
    "Ready",
    "Request",
    "Send",
    "Sent",
    "Stage",
]

LAUNCHER_ENDED: Final = 70
"""The exit status of a lab process that ends because its launcher did."""


@dataclass(frozen=True, slots=True)
class Build:
    """Make ``plan`` real, run ``engine`` in its nodes and wait until the rules reflect ``objects``. Answer: ``Built``.

    An existing lab is replaced: the new one is built before the old one is closed. ``seed`` orders source ports, and is
    part of every payload. ``resolv_confs`` are the /etc/resolv.conf of namespaces of the plan.
    """

    plan: Plan
    objects: tuple[KubeObject, ...]
    engine: EngineChoice
    seed: int = 0
    resolv_confs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Make the change of one step in the lab, and wait as it says. Answer: ``Advanced``.

    Attributes:
        step: its name.
        applied: objects that are new or differ from before.
        deleted: objects as they last were.
        change: the change to engines and nodes; its objects are in ``applied`` and ``deleted``.
        until: the condition to wait for; ``None`` waits until every running engine has programmed the objects.
        streams: those that continue through the step; one that does not run yet is begun.
        addresses: of the names that ``until`` has in conditions of connection tracking.
    """

    step: str
    applied: tuple[KubeObject, ...] = ()
    deleted: tuple[KubeObject, ...] = ()
    change: Change = field(default_factory=Change)
    until: Until | None = None
    streams: tuple[ResolvedProbe, ...] = ()
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conclude:
    """End the latest step: let its streams come to rest. Answer: ``Concluded``.

    With ``tables``, read the connection tracking tables then.
    """

    tables: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send one probe in the lab, and with ``trace`` trace its packet. Answer: ``Sent``."""

    resolved: ResolvedProbe
    trace: bool = False


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up a name from a namespace of the plan. Answer: ``LookedUp``. ``seconds`` bounds the wait."""

    netns_name: str
    query: Query
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Converse:
    """Hold a dialogue in the lab. Answer: ``Conversed``."""

    dialogue: Dialogue


@dataclass(frozen=True, slots=True)
class Dump:
    """Get the rules of one node as the kernel has them. Answer: ``Dumped``."""

    node: str


@dataclass(frozen=True, slots=True)
class Inspect:
    """Get the state of the engines of all nodes. Answer: ``Inspected``."""


@dataclass(frozen=True, slots=True)
class CollectState:
    """Get all that the lab still has of the last probe. Answer: ``CollectedState``."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a command in a node, pod or host. Answer: ``Executed``. ``seconds`` bounds it."""

    netns_name: str
    argv: tuple[str, ...]
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Close:
    """Close the lab, and check that nothing of it or of earlier ones is left. Answer: ``Closed``."""


@dataclass(frozen=True, slots=True)
class Examine:
    """Examine this machine's capabilities for a lab. Answer: ``Examined``."""


Request = (
    Build | Advance | Conclude | Send | LookUp | Converse | Dump | Inspect | CollectState | Execute | Examine | Close
)


@dataclass(frozen=True, slots=True)
class Ready:
    """The lab process is in its sandbox. ``pid`` is its own there; ``kernel`` is uname's release."""

    pid: int
    kernel: str
    rootless: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """How long one stage of a build took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Built:
    """The lab is built. ``variant`` names the tool that programs the rules, such as ``iptables v1.8.9 (legacy)``."""

    variant: str
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Advanced:
    """The step is made, and its condition holds. ``seconds`` is how long both took."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Concluded:
    """The evidence of a step."""

    evidence: StepEvidence


@dataclass(frozen=True, slots=True)
class Sent:
    """The evidence of a probe."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The result of a look-up."""

    lookup: Lookup


@dataclass(frozen=True, slots=True)
class Conversed:
    """The evidence of a dialogue."""

    spoken: Spoken


@dataclass(frozen=True, slots=True)
class Dumped:
    """A node's rules."""

    text: str


@dataclass(frozen=True, slots=True)
class Inspected:
    """The engine of each node."""

    proxies: tuple[ProxyRecord, ...]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node after a probe: its rules with counters, its engine's log, and the current values of its sysctls.

    Engines write sysctls, too, and so may a user in the lab.
    """

    node: str
    rules: str
    log: tuple[str, ...]
    sysctls: tuple[Sysctl, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectedState:
    """The frames of the last probe, all nodes after it, and the routes that balancers have made in the router."""

    capture: Capture
    nodes: tuple[NodeRecord, ...]
    balanced: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended. Output that is not UTF-8 contains replacement characters."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Closed:
    """There is no lab, and nothing of any is left."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The machine's capabilities, present and missing."""

    capabilities: tuple[Capability, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error for the client to raise again; ``kind`` stands for its class in ``proxylab.errors``."""

    kind: str
    words: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Failed:
    """The request could not be carried out."""

    fault: Fault


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
