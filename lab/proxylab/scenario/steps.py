"""The frozen objects of ``spec.steps``: the conditions to wait for, the expectations."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import field

from proxylab.scenario.change import Change
from proxylab.scenario.document import describe, shown
from proxylab.scenario.expect import ConntrackExpect, SourceKey
from proxylab.scenario.keys import NOT_EMPTY, Between, Check, Declared, Key, OtherKeys, Read, refused
from proxylab.scenario.matrix import When
from proxylab.scenario.probes import Probe, ProbeName
from proxylab.scenario.promises import Proves
from proxylab.scenario.syntax import Duration, LongDuration, distinct
from proxylab.scenario.words import Position

_METRIC_NAME: Final = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
"""https://prometheus.io/docs/concepts/data_model/"""


class EngineState(StrEnum):
    """The state of an engine: it has synced every change, or it does not run."""

    SYNCED = "synced"
    STOPPED = "stopped"


class RulesState(StrEnum):
    """Whether the rules of an engine are in a node's kernel."""

    PRESENT = "present"
    ABSENT = "absent"


class Until(Declared, frozen=True, kw_only=True):
    """The conditions that a step waits for, all of them, before the lab checks anything."""

    engines: Annotated[
        Mapping[str, EngineState],
        Key(
            "The state that each node's engine must reach: synced or stopped.",
            [{"node-a": "synced", "node-b": "stopped"}],
        ),
    ] = field(default_factory=dict)
    rules: Annotated[
        Mapping[str, RulesState],
        Key("Whether the engine's rules must be in a node's kernel.", [{"node-a": "present"}]),
    ] = field(default_factory=dict)
    conntrack: Annotated[
        ConntrackExpect | None,
        Key("What the connection tracking table must hold.", [{"none": {"replyFrom": "old"}}]),
    ] = None
    balancers: Annotated[
        Mapping[str, Annotated[tuple[str, ...], Check(distinct)]],
        Key("The nodes that each load balancer must send to, and no others.", [{"edge": ["node-b"]}]),
    ] = field(default_factory=dict)
    backends: Annotated[
        Mapping[str, str],
        Key("The pod that must answer a packet that the stream sends after the change.", [{"queries": "new"}]),
    ] = field(default_factory=dict)
    elapsed: Annotated[
        Duration | None, Key("A time that must pass in any case, for scenarios about a timeout.", ["12s"])
    ] = None
    within: Annotated[
        LongDuration | None,
        Key(
            "The deadline, 60s by default, and 100s in mode ipvs. The step fails if a condition does not hold by then. "
            "After kubectl it may stand alone: it is then that of the controllers and the engines.",
            ["30s"],
        ),
    ] = None
    position: Position

    @property
    def has_conditions(self) -> bool:
        """Whether it waits for something besides the engines."""
        return self != Until(within=self.within, position=self.position)


_MOST: Final = Between(0, 1_000_000)


class Count(Declared, frozen=True, kw_only=True):
    """How often something may happen."""

    at_least: Annotated[int, _MOST, Key("The least number.", [1])] = 0
    at_most: Annotated[Annotated[int, _MOST] | None, Key("The greatest number.", [3])] = None

    def __contains__(self, number: float) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


def _count(value: object) -> object:
    """A plain number is an exact count."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"atLeast": value, "atMost": value}
    if not isinstance(value, dict):
        raise refused(
            f"must be a number or a mapping, is {describe(value)}", allowed="allowed: 3, or {atLeast, atMost}"
        )
    return value


def _possible(count: Count) -> Count:
    if count.at_most is not None and count.at_most < count.at_least:
        raise refused(
            f"atLeast {count.at_least} is greater than atMost {count.at_most}", allowed="swap them, or change one"
        )
    return count


_AnyCount = Annotated[Count, Check(_possible), Read(_count, int | Count)]


class StreamExpect(Declared, frozen=True, kw_only=True):
    """What a stream must show in a step.

    A step begins with a packet of each stream just before the change. After its wait each stream sends at least five
    more packets. The step ends when every packet is answered, rejected or proven lost; then streams pause until the
    next step. So a loss counts in the step whose change causes it. TCP gets one second to retransmit what is missing at
    the end, SCTP 3.5 s. A packet that they deliver in a later step stays lost, and that step shows it as late.
    """

    backend: Annotated[str | None, Key("The pod that answers every packet after the step's wait.", ["old"])] = None
    backends: Annotated[
        Annotated[tuple[str, ...], NOT_EMPTY, Check(distinct)] | None,
        Key(
            "The pods that answer during the step, in the order of their first answers, and no others.",
            [["old", "new"]],
        ),
    ] = None
    source: Annotated[
        SourceKey | None,
        Key("The source that the backend sees after the step's wait, as in a probe's expect.", ["preserved"]),
    ] = None
    lost: Annotated[
        _AnyCount | None,
        Key("How many packets of the step get no answer: a number, or bounds.", [0, {"atLeast": 1, "atMost": 10}]),
    ] = None
    lost_on_link: Annotated[
        _AnyCount | None,
        Key(
            "How many packets, or their answers, the netem of a link loses. They do not count as lost.",
            [{"atLeast": 1}],
        ),
    ] = None
    rejected: Annotated[_AnyCount | None, Key("How many packets get an ICMP error.", [{"atLeast": 1}])] = None
    resets: Annotated[_AnyCount | None, Key("How many TCP resets, or SCTP aborts, the sender gets.", [0])] = None
    delay: Annotated[Duration | None, Key("The longest that an answer may take.", ["200ms"])] = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def backend_names(self) -> tuple[str, ...]:
        """The pods of ``backend`` and ``backends``."""
        return tuple(filter(None, (self.backend, *(self.backends or ()))))


def _metric_name(name: str) -> str:
    if not _METRIC_NAME.fullmatch(name):
        raise refused(f"{shown(name)} is not the name of a metric", allowed="allowed: letters, digits and _")
    return name


class Metric(Declared, frozen=True, kw_only=True):
    """A metric of one node's engine, as /metrics has it when the step ends.

    Samples that have all of ``labels`` count together. kube-proxy counts the Services with which the lab watches it,
    too: of ``service_changes_total`` and its like expect bounds.
    """

    name: Annotated[
        str,
        Check(_metric_name),
        Key("Its name; kubeproxy_ may be left out.", ["sync_proxy_rules_no_local_endpoints_total"]),
    ]
    node: Annotated[str, Key("The node of the engine.", ["node-a"])]
    labels: Annotated[
        Mapping[str, str], Key("The labels that its samples must have.", [{"traffic_policy": "internal"}])
    ] = field(default_factory=dict)
    value: Annotated[_AnyCount, Key("Its value: a number, or bounds.", [1, {"atLeast": 1}])]


class StepExpect(Declared, frozen=True, kw_only=True):
    """What must hold after a change: an entry for each stream, by its name, conntrack, and metrics."""

    streams: Annotated[Mapping[str, StreamExpect], OtherKeys()] = field(default_factory=dict)
    conntrack: Annotated[
        ConntrackExpect | None,
        Key("What the connection tracking table must hold.", [{"none": {"replyFrom": "old"}}]),
    ] = None
    metrics: Annotated[
        tuple[Metric, ...],
        Key(
            "What the engines' metrics must be.",
            [[{"name": "sync_proxy_rules_no_local_endpoints_total", "node": "node-a", "value": 1}]],
        ),
    ] = ()
    proves: Proves = ()
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def says_anything(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.streams or self.metrics) or self.conntrack is not None


class StepException(Declared, frozen=True, kw_only=True):
    """A different expectation, the cases in which it holds, and the reason."""

    when: Annotated[When, Key("The cases: those with all these values.", [{"mode": "ipvs"}])]
    expect: Annotated[
        StepExpect,
        Key("The expectation in these cases. It replaces expect as a whole.", [{"queries": {"lost": 1}}]),
    ]
    because: Annotated[str, NOT_EMPTY, Key("The reason.", ["ipvs keeps the entry"])]
    position: Position


class Step(Declared, frozen=True, kw_only=True):
    """A change of the cluster, and what must hold after it.

    A deleted pod serves until the step's wait is over. Then the lab closes its connections and cuts it off.
    """

    name: Annotated[ProbeName, Key("A title: what changes, and what must hold afterwards.", ["the new pod is ready"])]
    change: Annotated[Change, Key("The changes that begin the step.", [{"pods": {"new": {"ready": True}}}])] = Change()
    until: Annotated[
        Until | None,
        Key(
            "What the step waits for. The default is that every running engine has synced the change.",
            [{"rules": {"node-a": "present"}, "within": "30s"}],
        ),
    ] = None
    expect: Annotated[
        StepExpect,
        Key(
            "What must hold: an entry for each stream, by its name, and conntrack.",
            [{"queries": {"backend": "old", "lost": 0}, "conntrack": {"none": {"replyFrom": "old"}}}],
            implied=StepExpect(position=Position("", 1, 1)),
        ),
    ]
    probes: Annotated[
        tuple[Probe, ...],
        Key(
            "Probes to send after the wait. The lab sends those of spec.probes before the first step.",
            [
                [
                    {
                        "name": "the new pod is dialled",
                        "from": "client",
                        "to": {"service": "dns", "via": "clusterIP"},
                        "expect": {"outcome": "delivered", "source": "preserved", "backends": ["new"]},
                    }
                ]
            ],
        ),
    ] = ()
    exceptions: Annotated[
        tuple[StepException, ...],
        Key(
            "Different expectations for some engines, versions or cases, each with the reason.",
            [[{"when": {"mode": "ipvs"}, "expect": {"queries": {"lost": 1}}, "because": "ipvs keeps the entry"}]],
            alias="except",
        ),
    ] = ()
    position: Position
