"""What a client and a lab process say to each other.

Owns: the request and answer types, all frozen dataclasses that ``codec`` can carry.
Must not: hold behaviour.

Every request is answered by the answer named in its docstring, or by ``Failed``. The lab process speaks first, once it
is in its sandbox: ``Ready``, or ``Failed`` when it cannot be. ``proxylab.protocol.standing_labs`` has what is said
of a lab that stays.
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
    "Recall",
    "Recalled",
    "Request",
    "Send",
    "Sent",
    "Stage",
]

LAUNCHER_ENDED: Final = 70
"""The exit status of a lab process that ends because its launcher did."""


@dataclass(frozen=True, slots=True)
class Build:
    """Make ``plan`` real, run ``engine`` in its nodes and wait until ``objects`` are in the rules. Answer: ``Built``.

    A lab that stands already is replaced: the new one is built before the old one is closed. ``seed`` orders source
    ports, and stands in every payload. ``resolv_confs`` are the /etc/resolv.conf of namespaces of the plan.
    """

    plan: Plan
    objects: tuple[KubeObject, ...]
    engine: EngineChoice
    seed: int = 0
    resolv_confs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Make the change of one step in the lab that stands, and wait as it says. Answer: ``Advanced``.

    Attributes:
        step: its name.
        applied: objects that are new or others than before.
        deleted: objects as they last were.
        change: what else is done, to engines and nodes; its objects stand in ``applied`` and ``deleted``.
        until: what is waited for; ``None`` until every engine that runs has taken the objects up.
        streams: those that go on through the step; one that does not run yet is begun.
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
    """End the step that was made last: let its streams come to rest. Answer: ``Concluded``.

    With ``tables``, what connection tracking holds then is read.
    """

    tables: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Run one errand in the lab that stands, and trace its packet if it is asked for. Answer: ``Sent``."""

    resolved: ResolvedProbe
    trace: bool = False


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask about a name from inside a namespace of the plan. Answer: ``LookedUp``. ``seconds`` bounds the wait."""

    netns_name: str
    query: Query
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Converse:
    """Hold a dialogue in the lab that stands. Answer: ``Conversed``."""

    dialogue: Dialogue


@dataclass(frozen=True, slots=True)
class Dump:
    """Ask for the rules of one node as the kernel holds them. Answer: ``Dumped``."""

    node: str


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask how the engines of all nodes do. Answer: ``Inspected``."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask for all that the lab still knows of the last errand. Answer: ``Recalled``."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a command in a node, pod or host. Answer: ``Executed``. ``seconds`` bounds it."""

    netns_name: str
    argv: tuple[str, ...]
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Close:
    """Close the lab that stands, and see that nothing of it or of those before it is left. Answer: ``Closed``."""


@dataclass(frozen=True, slots=True)
class Examine:
    """Try what this machine can do for a lab. Answer: ``Examined``."""


Request = Build | Advance | Conclude | Send | LookUp | Converse | Dump | Inspect | Recall | Execute | Examine | Close


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
    """The lab stands. ``variant`` says what programs the rules, such as ``iptables v1.8.9 (legacy)``."""

    variant: str
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Advanced:
    """The step is made, and what it waits for is there. ``seconds`` is how long both took."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Concluded:
    """What was seen of a step."""

    evidence: StepEvidence


@dataclass(frozen=True, slots=True)
class Sent:
    """What was seen of an errand."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What became of a question."""

    lookup: Lookup


@dataclass(frozen=True, slots=True)
class Conversed:
    """What was seen of a dialogue."""

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
    """A node after an errand: rules with counters, what its engine has said so far, the plan's sysctls as they are.

    An engine writes sysctls too, and so may a user who looks around in a lab.
    """

    node: str
    rules: str
    log: tuple[str, ...]
    sysctls: tuple[Sysctl, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The frames of the last errand, all nodes after it, and the routes that balancers have made in the router."""

    capture: Capture
    nodes: tuple[NodeRecord, ...]
    balanced: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended. Output that is no UTF-8 is shown with replacement characters."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Closed:
    """No lab stands, and nothing of any is left."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What the machine can do, and what not."""

    capabilities: tuple[Capability, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that is to be raised again on the client's side; ``kind`` is the class of ``proxylab.errors``."""

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
    | Recalled
    | Executed
    | Examined
    | Closed
    | Failed
)
