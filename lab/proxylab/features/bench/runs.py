"""Measures one engine at one number of Services, in a lab of one node.

The lab stands before it has Services. They come as objects, past the scenario: no cluster IP has to be allocated and no
selector matched, and what is measured is the proxy. All Services have the same servers as endpoints, so each can be
dialled, and rules are as many as with servers of their own.

A change gives a Service the other half of the servers as its endpoints. So the first packet that meets the new rules is
known: it reaches a server that it could not reach before.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.cluster.objects import ZONE_LABEL, EndpointSlice, Node
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.errors import InternalError
from proxylab.evidence.timings import ChangeTimes
from proxylab.features.bench.figures import BenchedMachine, Figure, Timings, figures_of
from proxylab.features.bench.large_cluster import CLIENT, NODE, LargeCluster, scenario_for, servers_for, spaced
from proxylab.protocol.messages import (
    AnswerOf,
    Request,
    TimeChanges,
    TimeConnections,
    TimedChange,
    TimedDial,
    TimedPods,
    TimeStart,
)
from proxylab.timing import Deadline

CHURNED: Final = 100
"""So many Services change at once."""

CONNECTIONS: Final = 1000
_FULL_SYNCS: Final = 2
_PORT: Final = 7373
_ASK_SECONDS: Final = 300.0


class MeasuredRound(Struct, frozen=True):
    """The figures of one engine at one number of Services, and where they were measured."""

    figures: Mapping[Figure, float]
    machine: BenchedMachine


def measure(session: Session, services: int, endpoints: int, changes: int) -> MeasuredRound:
    """Measure the session's engine once.

    Raises:
        CapabilityError: the machine lacks something.
        EngineError: the engine did not start, or did not program the cluster in time.
        ProgramError: the program that dials failed.
    """
    with closing(session.open(scenario_for(endpoints))) as lab:
        machine = BenchedMachine(
            release=lab.built.kernel,
            processors=os.cpu_count() or 1,
            processor=_processor(),
            iptables=lab.built.variant,
        )
        return MeasuredRound(figures_of(_Measurement(lab, services, endpoints).timings(changes)), machine)


class _Measurement:
    """One lab with so many Services, and which half of the servers each of them has as its endpoints."""

    def __init__(self, lab: OpenLab, services: int, endpoints: int) -> None:
        self._lab = lab
        self._services = services
        self._endpoints = endpoints
        self._cluster = LargeCluster(_network(lab), _PORT)
        self._pods = TimedPods(CLIENT, servers_for(endpoints), _PORT)
        self._swapped = [False] * services
        self._seconds = lab.engine.sync_seconds or MODES[mode_of(lab.engine.name)].sync_seconds

    def timings(self, changes: int) -> Timings:
        """Measure everything once; it has so many single changes."""
        node = next(each for each in self._lab.objects() if isinstance(each, Node) and each.name == NODE)
        start = TimeStart(
            node=NODE,
            pods=self._pods,
            dial=self._dial(self._services - 1),
            applied=(
                *map(self._cluster.service, range(self._services)),
                *map(self._slice, range(self._services)),
            ),
        )
        started = self._ask(start, 2)
        zones = (replace(node, labels={**node.labels, ZONE_LABEL: f"zone-{each}"}) for each in range(_FULL_SYNCS))
        full_syncs = self._change(TimedChange((each,)) for each in zones)
        single = self._change(self._swap([each]) for each in islice(cycle(spaced(self._services, changes)), changes))
        (churn,) = self._change([self._swap([*spaced(self._services, CHURNED)])])
        dialled = islice(cycle(spaced(self._services, CONNECTIONS)), CONNECTIONS)
        connections = TimeConnections(pods=self._pods, to=tuple(map(self._cluster.frontend, dialled)))
        return Timings(
            start=started,
            full_syncs=full_syncs,
            changes=single,
            churn=churn,
            connections=self._ask(connections, 1),
            rules=self._rules(),
        )

    def _ask(self, request: Request[AnswerOf], syncs: int) -> AnswerOf:
        return self._lab.connection.request(request, Deadline.after(_ASK_SECONDS + syncs * self._seconds))

    def _change(self, changes: Iterable[TimedChange]) -> Sequence[ChangeTimes]:
        made = tuple(changes)
        return self._ask(TimeChanges(node=NODE, pods=self._pods, changes=made), 2 * len(made))

    def _swap(self, numbers: Sequence[int]) -> TimedChange:
        """The other servers for each of these Services, of which the last one is dialled."""
        for number in numbers:
            self._swapped[number] = not self._swapped[number]
        return TimedChange(tuple(map(self._slice, numbers)), self._dial(numbers[-1]))

    def _half(self, number: int) -> tuple[str, ...]:
        names = self._pods.servers
        return names[self._endpoints :] if self._swapped[number] else names[: self._endpoints]

    def _dial(self, number: int) -> TimedDial:
        return TimedDial(self._cluster.frontend(number), self._half(number))

    def _slice(self, number: int) -> EndpointSlice:
        return self._cluster.slice(number, [(_ipv4(self._lab, each), NODE) for each in self._half(number)])

    def _rules(self) -> int:
        """How many rules and elements the proxy has in the kernel."""
        return sum(1 for _ in MODES[mode_of(self._lab.engine.name)].loaded(self._lab.rules_of(NODE)))


def room() -> int:
    """How many Services a lab has room for."""
    return LargeCluster(_network_of(scenario_for(1).network.service_cidrs), _PORT).most


def _network(lab: OpenLab) -> IPv4Network:
    return _network_of(lab.scenario.network.service_cidrs)


def _network_of(networks: Iterable[object]) -> IPv4Network:
    found = next((each for each in networks if isinstance(each, IPv4Network)), None)
    if found is None:
        raise InternalError("the lab of a benchmark has no network of cluster IPs")
    return found


def _ipv4(lab: OpenLab, pod: str) -> IPv4Address:
    return next(each for each in lab.addresses[pod] if isinstance(each, IPv4Address))


def _processor() -> str:
    """The name of the processor, as the kernel has it."""
    return next(_names(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")), "unknown processor")


def _names(text: str) -> Iterator[str]:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            yield value.strip()
