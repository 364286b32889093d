"""The frozen objects of ``spec.steps``: the changes, the conditions to wait for, the expectations.

``model`` exports them all.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import field

from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.encoding import Record
from proxylab.scenario.expect import ConntrackExpect, SourceExpectation
from proxylab.scenario.intent import Probe
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
"""The default deadline of a step's wait, in milliseconds."""


class EngineAction(StrEnum):
    """An action on a node's engine: SIGKILL, a clean stop, a start, a clean stop and start, a flush of its rules.

    A proxy mode is one, too: a clean stop, and a start in that mode.
    """

    KILL = "kill"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    FLUSH = "flush"
    IPTABLES = "iptables"
    NFTABLES = "nftables"

    @property
    def mode(self) -> str:
        """The mode in which it starts the engine; empty for the mode that the engine had."""
        return self if self in (EngineAction.IPTABLES, EngineAction.NFTABLES) else ""

    @property
    def ends(self) -> bool:
        """Whether it ends the engine that runs, if only to start another one."""
        return self not in (EngineAction.START, EngineAction.FLUSH)

    @property
    def begins(self) -> bool:
        """Whether an engine runs afterwards that did not run before."""
        return self in (EngineAction.START, EngineAction.RESTART) or bool(self.mode)


class EngineState(StrEnum):
    """The state of an engine: it has synced every change, or it does not run."""

    SYNCED = "synced"
    STOPPED = "stopped"


class RulesState(StrEnum):
    """Whether the rules of an engine are in a node's kernel."""

    PRESENT = "present"
    ABSENT = "absent"


class ServiceChange(Record, frozen=True, kw_only=True):
    """A Service that is added or changed. ``service`` is the whole new object, ``None`` to delete it.

    It has no allocated fields, even if the API server has allocated some for its former state.
    """

    namespace: str
    name: str
    service: Service | None


class SliceChange(Record, frozen=True, kw_only=True):
    """An EndpointSlice that the author adds or changes. ``slice`` is the whole new object, ``None`` to delete it."""

    namespace: str
    name: str
    slice: EndpointSlice | None


class PodChange(Record, frozen=True, kw_only=True):
    """Changes of one pod; ``None`` changes nothing.

    ``present`` is whether the API knows the pod. A deleted pod keeps its network namespace and may come back.
    ``None`` as a label's value removes the label.
    """

    present: bool | None = None
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)


class NodeChange(Record, frozen=True, kw_only=True):
    """Changes of one node: of its API object (see ``PodChange``), and of sysctls in its network namespace.

    ``taints`` are the keys of all taints that it then has.
    """

    present: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: tuple[str, ...] | None = None
    terminating: bool | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)


class LinkChange(Record, frozen=True, kw_only=True):
    """A link of a node, pod or host to cut or mend, by its device; ``eth0`` is the machine's first."""

    netns_name: str
    device: str
    up: bool


class Change(Record, frozen=True, kw_only=True):
    """The changes of one step, which take effect together. ``pods`` are single pods; ``engines`` are by node."""

    services: tuple[ServiceChange, ...] = ()
    slices: tuple[SliceChange, ...] = ()
    pods: Mapping[str, PodChange] = field(default_factory=dict)
    nodes: Mapping[str, NodeChange] = field(default_factory=dict)
    engines: Mapping[str, EngineAction] = field(default_factory=dict)
    links: tuple[LinkChange, ...] = ()


class Until(Record, frozen=True, kw_only=True):
    """The conditions that a step waits for, all of them, for ``within`` milliseconds at most.

    Attributes:
        engines: the state that each node's engine must reach.
        rules: whether the engine's rules must be in the kernel of a node.
        conntrack: the entries that connection tracking must hold.
        balancers: the nodes that each load balancer must send to, and no others.
        backends: the pod that must answer each stream.
        elapsed: milliseconds that must pass in any case, for scenarios about a timeout.
        within: the deadline; the step fails if a condition does not hold by then.
    """

    engines: Mapping[str, EngineState] = field(default_factory=dict)
    rules: Mapping[str, RulesState] = field(default_factory=dict)
    conntrack: ConntrackExpect | None = None
    balancers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backends: Mapping[str, str] = field(default_factory=dict)
    elapsed: int | None = None
    within: int = DEADLINE
    position: Position


class Count(Record, frozen=True, kw_only=True):
    """Bounds on a count; ``at_most`` is ``None`` for no upper bound."""

    at_least: int = 0
    at_most: int | None = None

    def __contains__(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


class StreamExpect(Record, frozen=True, kw_only=True):
    """What a stream must show in one step, from just before its change until the stream pauses before the next.

    Attributes:
        backend: the pod that answers every packet after the step's wait.
        backends: the pods that answer during the step, in the order of their first answers, and no others.
        source: the source that the backend sees after the step's wait.
        lost: packets without an answer.
        rejected: packets that get an ICMP error.
        resets: TCP resets that the sender gets.
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


class StepExpect(Record, frozen=True, kw_only=True):
    """What must hold after a change, for streams by name and for connection tracking.

    ``positions`` are the places of the keys that the author wrote.
    """

    streams: Mapping[str, StreamExpect] = field(default_factory=dict)
    conntrack: ConntrackExpect | None = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def says_anything(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.streams) or self.conntrack is not None


class StepException(Record, frozen=True, kw_only=True):
    """One entry of a step's ``except`` (see ``Exceptional``)."""

    when: Mapping[str, str]
    version: VersionRange | None = None
    expect: StepExpect
    because: str
    position: Position


class Step(Record, frozen=True, kw_only=True):
    """A change, the conditions to wait for, and what must hold then. The lab sends ``probes`` after the wait.

    If ``until`` is ``None``, the step waits until every running engine has synced the change.
    """

    name: str
    change: Change = field(default_factory=Change)
    until: Until | None = None
    expect: StepExpect
    probes: tuple[Probe, ...] = ()
    exceptions: tuple[StepException, ...] = ()
    position: Position
