"""What is said of a lab that stays, and by clients that come by its door.

Owns: those requests and answers, all frozen dataclasses that ``codec`` can carry, and what a conversation consists of.
Must not: hold behaviour.

A ``Feed`` is answered bit by bit, and last by ``Ended``; while it lasts, the client may say ``Signal``. Every other
request is answered once, as in ``proxylab.protocol.messages``.
"""

from collections.abc import Mapping
from dataclasses import field

from proxylab.cluster.objects import KubeObject
from proxylab.engines.protocol import EngineChoice
from proxylab.frozen import dataclass
from proxylab.protocol.messages import (
    Advance,
    Advanced,
    Build,
    Built,
    Close,
    Closed,
    Conclude,
    Concluded,
    Converse,
    Conversed,
    Dump,
    Dumped,
    Examine,
    Examined,
    Execute,
    Executed,
    Failed,
    Inspect,
    Inspected,
    LookedUp,
    LookUp,
    Ready,
    Recall,
    Recalled,
    Send,
    Sent,
)
from proxylab.scenario.model import Scenario

__all__ = [
    "AnyRequest",
    "AnyResponse",
    "Attach",
    "End",
    "Ended",
    "Feed",
    "Frames",
    "Greet",
    "Greeted",
    "Heard",
    "Lines",
    "Listed",
    "Listen",
    "Listing",
    "Log",
    "Memory",
    "Remember",
    "Signal",
    "Stay",
    "Stays",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a client that comes later must know of a standing lab to go on with it. The lab process only keeps it.

    Attributes:
        name: what the lab is called.
        scenario: what it was built for, or last brought to.
        source: the scenario's text, where it stands in no file.
        engine: as the client chose it.
        seed: of ports and payloads.
        built: how it was built.
        made: how many steps of the scenario have been made.
        directory: from which its client named the file.
        began: when it was told to stay, in seconds since the epoch.
    """

    name: str
    scenario: Scenario
    source: str = ""
    engine: EngineChoice = field(default_factory=EngineChoice)
    seed: int = 0
    built: Built
    made: int = 0
    directory: str = "/"
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class Stay:
    """Let other clients come by the door. Answer: ``Stays``.

    The lab then outlives the client that says so, for so many seconds; with ``None`` it ends with that client as ever.
    """

    memory: Memory
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Greet:
    """Ask how a standing lab does. Answer: ``Greeted``."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Ask what is to be known of a standing lab; first, with a ``memory``, let that be known. Answer: ``Memory``."""

    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Ask for the objects that the API server shows. Answer: ``Listed``."""


@dataclass(frozen=True, slots=True)
class End:
    """End a standing lab. Answer: ``Ended``, and then the lab process goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Run a command in a node, pod or host on the three descriptors that come along. A feed.

    Attributes:
        netns_name: the node, pod or host.
        argv: the command.
        terminal: the descriptors are a terminal that shall be the command's own.
        directory: where it works.
        environment: on top of the usual.
    """

    netns_name: str
    argv: tuple[str, ...]
    terminal: bool = False
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """Ask for what a node's engine has said, and with ``follow`` for what it will say. A feed of ``Lines``."""

    node: str
    follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Listen to what crosses a device. A feed of ``Frames``, the first of which is empty: from then on it listens.

    It ends by a signal, after ``seconds``, or after ``count`` frames.
    """

    netns_name: str
    device: str
    seconds: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """Hand a signal to the command that runs, or end another feed. No answer."""

    number: int


@dataclass(frozen=True, slots=True)
class Stays:
    """The door is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeted:
    """A standing lab, in short. Times are in seconds; ``left`` is ``None`` for one that ends with its first client."""

    name: str
    file: str
    case: str
    engine: str
    age: float
    left: float | None
    busy: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects of the cluster, by kind, namespace and name, and the revision of each."""

    objects: tuple[KubeObject, ...]
    revisions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """What an engine has said, line by line."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """A frame that crossed a device: when, in nanoseconds since the epoch, which way, and its bytes as hexadecimals."""

    at: int
    outgoing: bool
    data: str


@dataclass(frozen=True, slots=True)
class Frames:
    """What crossed a device since the last ``Frames``; ``lost`` is how many frames found no room."""

    frames: tuple[Heard, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A feed is over. ``status`` is a command's exit code, or minus the number of the signal that ended it."""

    status: int = 0


Feed = Attach | Log | Listen

AnyRequest = (
    Build | Advance | Conclude | Send | LookUp | Converse | Dump | Inspect | Recall | Execute | Examine | Close
    | Stay | Greet | Remember | Listing | End | Attach | Log | Listen | Signal
)  # fmt: skip
"""All that a client says."""

AnyResponse = (
    Ready | Built | Advanced | Concluded | Sent | LookedUp | Conversed | Dumped | Inspected | Recalled | Executed
    | Examined | Closed | Failed
    | Stays | Greeted | Memory | Listed | Lines | Frames | Ended
)  # fmt: skip
"""All that a lab process says."""
