"""What a benchmark measures: ``Figure``, the values of each in every round, and what follows from them.

A round measures each engine at each number of Services once, in a lab process of its own. A report keeps the values of
all rounds: the median is what is shown, their spread is the noise by which two reports are compared.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Final

from msgspec import Struct, field

from proxylab.encoding import MisfitError, Record, decode
from proxylab.evidence.timings import ChangeTimes, ConnectionTimes, StartTimes
from proxylab.features.bench.growth import Growth, growth

FORMAT: Final = 1
_P99: Final = 0.99


class Unit(StrEnum):
    """What a figure counts."""

    SECONDS = "seconds"
    BYTES = "bytes"
    RATE = "a second"
    COUNT = "count"


class Figure(StrEnum):
    """A figure of a benchmark, by its name in JSON."""

    COLD_START = "coldStart"
    FULL_SYNC = "fullSync"
    ONE_CHANGE = "oneChange"
    CHURN = "churn"
    LATENCY_P50 = "latencyP50"
    LATENCY_P99 = "latencyP99"
    FIRST_PACKET = "firstPacket"
    FIRST_PACKET_P99 = "firstPacketP99"
    ESTABLISHED = "established"
    CONNECTIONS = "connections"
    ENGINE_MEMORY = "engineMemory"
    KERNEL_MEMORY = "kernelMemory"
    RULES = "rules"

    @property
    def facts(self) -> "FigureFacts":
        """What is known of it."""
        return _FACTS[self]


class FigureFacts(Struct, frozen=True, kw_only=True):
    """What is known of a figure.

    Attributes:
        title: a few words for a table.
        meaning: what is measured, in a sentence.
        unit: what it counts.
        more_is_better: whether a larger value is a better one.
    """

    title: str
    meaning: str
    unit: Unit = Unit.SECONDS
    more_is_better: bool = False


_FACTS: Final = {
    Figure.COLD_START: FigureFacts(
        title="cold start",
        meaning="From the start of the proxy, on a node without its rules, to the first packet that reaches an "
        "endpoint of the last Service.",
    ),
    Figure.FULL_SYNC: FigureFacts(
        title="full sync",
        meaning="The mean time of the full syncs that a changed zone of the node causes, by the proxy's own metrics.",
    ),
    Figure.ONE_CHANGE: FigureFacts(
        title="one change",
        meaning="The sync of a change that gives a Service other endpoints, by the proxy's own metrics.",
    ),
    Figure.CHURN: FigureFacts(
        title="endpoint churn",
        meaning="From the first of 100 changes of as many Services, or of all if there are fewer, made at once, to the "
        "first packet that meets the rules of the last.",
    ),
    Figure.LATENCY_P50: FigureFacts(
        title="programming latency, p50",
        meaning="From a change in the API to the first packet that meets its rules: half of the changes take less.",
    ),
    Figure.LATENCY_P99: FigureFacts(
        title="programming latency, p99",
        meaning="The same, where 99 of 100 changes take less; of fewer changes in a round, the slowest.",
    ),
    Figure.FIRST_PACKET: FigureFacts(
        title="first packet",
        meaning="From dialling a Service to the first data at its endpoint: the median over connections to Services "
        "that are spread over the cluster.",
    ),
    Figure.FIRST_PACKET_P99: FigureFacts(
        title="first packet, p99", meaning="The same, where 99 of 100 connections take less."
    ),
    Figure.ESTABLISHED: FigureFacts(
        title="established",
        meaning="A byte to the endpoint and a byte back on an open connection: the median over connections.",
    ),
    Figure.CONNECTIONS: FigureFacts(
        title="connections a second",
        meaning="Connections that one client opens, uses and closes, one after the other.",
        unit=Unit.RATE,
        more_is_better=True,
    ),
    Figure.ENGINE_MEMORY: FigureFacts(
        title="memory of the proxy",
        meaning="The resident memory of kube-proxy's process after its start; of an embedded engine, what the lab "
        "process has grown by.",
        unit=Unit.BYTES,
    ),
    Figure.KERNEL_MEMORY: FigureFacts(
        title="memory of the kernel",
        meaning="What the slabs, the vmalloc area and the counters of the machine have grown by during the start.",
        unit=Unit.BYTES,
    ),
    Figure.RULES: FigureFacts(
        title="rules and elements",
        meaning="The proxy's rules in the kernel, and the elements of its sets.",
        unit=Unit.COUNT,
    ),
}


class Timings(Struct, frozen=True, kw_only=True):
    """What a lab has measured of one engine at one number of Services in one round."""

    start: StartTimes
    full_syncs: Sequence[ChangeTimes]
    changes: Sequence[ChangeTimes]
    churn: ChangeTimes
    connections: ConnectionTimes
    rules: int


def figures_of(found: Timings) -> dict[Figure, float]:
    """The figures of one round, without those that the engine does not have."""
    latencies = [each.met for each in found.changes if each.met is not None]
    first, count = found.connections.first, len(found.connections.first)
    figures = {
        Figure.COLD_START: found.start.times.met,
        Figure.FULL_SYNC: _median([each.full.of_one or each.syncs.of_one for each in found.full_syncs]),
        Figure.ONE_CHANGE: _median([_of_change(each) for each in found.changes]),
        Figure.CHURN: found.churn.met,
        Figure.LATENCY_P50: _median(latencies),
        Figure.LATENCY_P99: quantile(latencies, _P99),
        Figure.FIRST_PACKET: _median(first),
        Figure.FIRST_PACKET_P99: quantile(first, _P99),
        Figure.ESTABLISHED: _median(found.connections.established),
        Figure.CONNECTIONS: count / found.connections.seconds if count else None,
        Figure.ENGINE_MEMORY: found.start.engine_bytes,
        Figure.KERNEL_MEMORY: found.start.kernel_bytes,
        Figure.RULES: found.rules,
    }
    return {figure: float(value) for figure, value in figures.items() if value is not None}


def _of_change(times: ChangeTimes) -> float | None:
    """The mean of the partial syncs; of all where the mode has none."""
    return times.syncs.since(times.full).of_one or times.syncs.of_one


def _median(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def quantile(values: Sequence[float], part: float) -> float | None:
    """The smallest value below or at which that part of them lies (nearest rank); ``None`` without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)] if ordered else None


class BenchedSize(Record, frozen=True, kw_only=True):
    """An engine at one number of Services: the values of each figure, round by round; ``failure`` says why none are."""

    services: int
    values: Mapping[Figure, tuple[float, ...]] = field(default_factory=dict)
    failure: str = ""

    def median(self, figure: Figure) -> float | None:
        """The median over the rounds; ``None`` for a figure that the engine does not have."""
        return _median(self.values.get(figure, ()))

    def with_round(self, figures: Mapping[Figure, float]) -> "BenchedSize":
        """The same with one round more."""
        names = [each for each in Figure if each in self.values or each in figures]
        values = {each: (*self.values.get(each, ()), *((figures[each],) if each in figures else ())) for each in names}
        return BenchedSize(services=self.services, values=values, failure=self.failure)


class BenchedEngine(Record, frozen=True, kw_only=True):
    """An engine on a kernel. ``binary`` says which kube-proxy it is, or is empty."""

    engine: str
    kernel: str
    binary: str = ""
    sizes: tuple[BenchedSize, ...] = ()

    @property
    def name(self) -> str:
        """The engine, with the kernel if it is not the machine's."""
        return self.engine if self.kernel == "host" else f"{self.engine} ({self.kernel})"

    def at(self, services: int) -> BenchedSize | None:
        """What was measured at that number of Services."""
        return next((each for each in self.sizes if each.services == services), None)

    def growth(self, figure: Figure) -> Growth | None:
        """How the figure grows with the number of Services, over all rounds."""
        return growth([(each.services, value) for each in self.sizes for value in each.values.get(figure, ())])


class BenchedMachine(Record, frozen=True, kw_only=True):
    """Where a benchmark ran: its kernel's release, its processors, and the variant of iptables."""

    release: str
    processors: int
    processor: str
    iptables: str


class BenchReport(Record, frozen=True, kw_only=True):
    """A benchmark.

    Attributes:
        format: of this record.
        proxylab: its version.
        begun: when, in UTC.
        command: what was typed.
        machine: where; ``None`` if nothing could be measured.
        endpoints: of each Service.
        rounds: how many were asked for.
        changes: how many changes a round has.
        engines: in the order of the command.
    """

    format: int = FORMAT
    proxylab: str
    begun: str
    command: str
    machine: BenchedMachine | None
    endpoints: int
    rounds: int
    changes: int
    engines: tuple[BenchedEngine, ...] = ()

    @property
    def services(self) -> tuple[int, ...]:
        """The numbers of Services, ascending."""
        return tuple(sorted({size.services for each in self.engines for size in each.sizes}))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Those that an engine has."""
        found = {name for each in self.engines for size in each.sizes for name in size.values}
        return tuple(each for each in Figure if each in found)


def read_report(text: str) -> BenchReport:
    """Read a stored report. Raises ``ValueError``."""
    try:
        report = decode(text.encode(), BenchReport)
    except MisfitError as error:
        raise ValueError(f"it is no benchmark that this version of proxylab can read: {error}") from None
    if report.format != FORMAT:
        raise ValueError(f"it is a benchmark of format {report.format}; this version of proxylab reads {FORMAT}")
    return report


def shown(value: float | None, unit: Unit) -> str:
    """A value with three digits and the unit that suits it.

    Example:
        >>> shown(0.00234, Unit.SECONDS), shown(12.0, Unit.SECONDS), shown(3_500_000, Unit.BYTES)
        ('2.34 ms', '12.0 s', '3.34 MiB')
        >>> shown(None, Unit.COUNT), shown(81234, Unit.COUNT)
        ('-', '81,234')
    """
    if value is None:
        return "-"
    match unit:
        case Unit.SECONDS:
            scale = next((each for each in _SECONDS if value >= each.least), _SECONDS[-1])
            return f"{_three(value / scale.least)} {scale.name}"
        case Unit.BYTES:
            scale = next((each for each in _BYTES if value >= each.least), _BYTES[-1])
            return f"{_three(value / scale.least)} {scale.name}"
        case _:
            return f"{value:,.0f}"


class _Scale(Struct, frozen=True):
    least: float
    name: str


_SECONDS: Final = (_Scale(1.0, "s"), _Scale(1e-3, "ms"), _Scale(1e-6, "us"))
_BYTES: Final = (_Scale(float(1 << 30), "GiB"), _Scale(float(1 << 20), "MiB"), _Scale(float(1 << 10), "KiB"))


def _three(value: float) -> str:
    """Three digits, unless there are more before the point.

    Example:
        >>> _three(1.234), _three(12.34), _three(123.4), _three(0.5)
        ('1.23', '12.3', '123', '0.50')
    """
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
