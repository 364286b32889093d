"""The course of a scenario: what changes step by step, what each step waits for, and what must hold after it.

Owns: the frozen objects of ``spec.steps``. ``model`` exports them all.
Must not: know YAML, pydantic, or how a change is made.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.frozen import dataclass
from proxylab.scenario.intent import ConntrackExpect, Probe, SourceExpectation
from proxylab.scenario.versions import VersionRange
from proxylab.scenario.words import Position

__all__ = [
    "DEADLINE",
    "Change",
    "Count",
    "EngineAction",
    "EngineState",
    "LinkChange",
    "NodeChange",
    "PodChange",
    "RulesState",
    "ServiceChange",
    "SliceChange",
    "Step",
    "StepException",
    "StepExpect",
    "StreamExpect",
    "Until",
]

DEADLINE: Final = 10_000
"""How long a step waits for its condition unless it says otherwise, in milliseconds."""


class EngineAction(StrEnum):
    """What is done to the engine of a node: SIGKILL, a stop in good order, a start, both, or a flush of its rules."""

    KILL = "kill"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    FLUSH = "flush"


class EngineState(StrEnum):
    """What an engine has come to: it has taken up every change, or it runs no more."""

    SYNCED = "synced"
    STOPPED = "stopped"


class RulesState(StrEnum):
    """Whether the rules of an engine are in a node's kernel."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """A Service that is added or changed; ``service`` is the whole of it, as it then stands, ``None`` to delete it.

    What the API server would allocate is missing, also where an earlier form of it has had something allocated.
    """

    namespace: str
    name: str
    service: Service | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceChange:
    """An EndpointSlice that the author adds, changes or, with ``None``, deletes; ``slice`` is the whole of it."""

    namespace: str
    name: str
    slice: EndpointSlice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """What becomes of one pod; ``None`` leaves a thing as it is.

    ``present`` says whether the API knows it: a pod that is deleted keeps its place on the wire, and may come back.
    A label that is ``None`` is taken off.
    """

    present: bool | None = None
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """What becomes of one node: of its object in the API (see ``PodChange``), and of sysctls in its namespace.

    ``taints`` are the keys of all that it then has.
    """

    present: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: tuple[str, ...] | None = None
    terminating: bool | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """A link that is cut or mended: that of a node, pod or host, by its device, ``eth0`` for their own."""

    netns_name: str
    device: str
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changes in one step, all at once. Pods and nodes are single ones, ``engines`` are by node."""

    services: tuple[ServiceChange, ...] = ()
    slices: tuple[SliceChange, ...] = ()
    pods: Mapping[str, PodChange] = field(default_factory=dict)
    nodes: Mapping[str, NodeChange] = field(default_factory=dict)
    engines: Mapping[str, EngineAction] = field(default_factory=dict)
    links: tuple[LinkChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """What a step waits for before anything is judged: all of this, for ``within`` milliseconds at most.

    Attributes:
        engines: the state that the engines of nodes must come to.
        rules: whether the engine's rules must be in the kernel of a node.
        conntrack: what connection tracking must hold.
        balancers: the nodes that a balancer sends to, no others.
        backends: the pod that answers a stream.
        elapsed: milliseconds that pass in any case, where a timeout is the subject.
        within: the deadline; what is not there then fails the step.
    """

    engines: Mapping[str, EngineState] = field(default_factory=dict)
    rules: Mapping[str, RulesState] = field(default_factory=dict)
    conntrack: ConntrackExpect | None = None
    balancers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backends: Mapping[str, str] = field(default_factory=dict)
    elapsed: int | None = None
    within: int = DEADLINE
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How often something may happen: ``at_least`` times, and ``at_most`` times where that is not ``None``."""

    at_least: int = 0
    at_most: int | None = None

    def __contains__(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamExpect:
    """What a stream must show in one step: from just before its change until the stream rests before the next step's.

    Attributes:
        backend: the pod that answers every packet behind the step's wait.
        backends: the pods that answer while the step lasts, in the order of their first answers, and no others.
        source: whom the backend sees behind the step's wait.
        lost: packets that nobody answers.
        rejected: packets that an ICMP error answers.
        resets: RSTs that the sender gets.
        delay: the longest that an answer may take, in milliseconds.
    """

    backend: str | None = None
    backends: tuple[str, ...] | None = None
    source: SourceExpectation | None = None
    lost: Count | None = None
    rejected: Count | None = None
    resets: Count | None = None
    delay: int | None = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExpect:
    """What must hold after a change, of streams by their names and of connection tracking.

    ``positions`` gives the place of each key that the author wrote.
    """

    streams: Mapping[str, StreamExpect] = field(default_factory=dict)
    conntrack: ConntrackExpect | None = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def says_anything(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.streams) or self.conntrack is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepException:
    """One entry of a step's ``except`` (see ``Exceptional``)."""

    when: Mapping[str, str]
    version: VersionRange | None = None
    expect: StepExpect
    because: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change, what is waited for, and what must hold then; ``probes`` are sent after the wait.

    Where ``until`` is ``None`` the step waits until every engine that runs has taken the change up.
    """

    name: str
    change: Change = field(default_factory=Change)
    until: Until | None = None
    expect: StepExpect
    probes: tuple[Probe, ...] = ()
    exceptions: tuple[StepException, ...] = ()
    position: Position
