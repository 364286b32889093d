"""Two benchmarks beside each other: which figure has changed by more than noise.

Theory of operation. The values of a figure in the rounds of each run are two samples. A slow machine makes everything
slower by a factor, so their logarithms are compared, by Welch's test (``statistics.difference_p_value``). Many figures
are compared at once, and chance alone would make one of a hundred look changed. So Holm's method corrects each
probability for the number of figures: below ``SIGNIFICANCE``, a run in which nothing has changed reports any change at
all once in a hundred times.

The test knows the noise between the rounds of a run. It does not know what else was otherwise on the machine while the
other run was made: compare runs of one machine that did nothing else.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.features.bench.figures import BenchedEngine, BenchReport, Figure
from proxylab.statistics import difference_p_value

SIGNIFICANCE: Final = 0.01


class ComparedFigure(Struct, frozen=True, kw_only=True):
    """A figure of an engine at a number of Services in both runs: the medians.

    ``chance`` is the probability that noise alone makes such a difference in any of the figures that were compared.
    """

    engine: str
    services: int
    figure: Figure
    before: float
    after: float
    chance: float

    @property
    def ratio(self) -> float:
        """The figure now as a multiple of what it was; infinite for what was nothing."""
        if not self.before:
            return 1.0 if not self.after else math.inf
        return self.after / self.before

    @property
    def is_more_than_noise(self) -> bool:
        """Whether it has changed."""
        return self.chance < SIGNIFICANCE

    @property
    def is_worse(self) -> bool:
        """Whether it has changed for the worse."""
        return self.is_more_than_noise and (self.ratio < 1) is self.figure.facts.more_is_better


class BenchComparison(Struct, frozen=True):
    """All figures that both runs have; and what they cannot be compared in, or differ in, in a line each."""

    figures: tuple[ComparedFigure, ...]
    notes: tuple[str, ...]

    @property
    def changed(self) -> tuple[ComparedFigure, ...]:
        """Those that have changed by more than noise, the largest change first."""
        found = [each for each in self.figures if each.is_more_than_noise]
        return tuple(sorted(found, key=lambda each: -abs(math.log(each.ratio)) if 0 < each.ratio < math.inf else 0.0))


def compare(before: BenchReport, after: BenchReport) -> BenchComparison:
    """What has changed from one run to the other."""
    known = {each.name: each for each in before.engines}
    found, notes = list[ComparedFigure](), list(_differences(before, after))
    for engine in after.engines:
        if (earlier := known.get(engine.name)) is None:
            notes.append(f"{engine.name}: the stored run has no such engine")
            continue
        compared, lacking = _compared(earlier, engine)
        found += compared
        notes += lacking
    chances = corrected([each.chance for each in found])
    return BenchComparison(
        tuple(replace(each, chance=chance) for each, chance in zip(found, chances, strict=True)), tuple(notes)
    )


def _differences(before: BenchReport, after: BenchReport) -> Iterator[str]:
    if before.endpoints != after.endpoints:
        yield f"a Service had {before.endpoints} endpoints in the stored run, and has {after.endpoints} now"
    machines = before.machine, after.machine
    for name, what in (("kernel", "release"), *((each, each) for each in ("processor", "processors", "iptables"))):
        old, new = (getattr(each, what) for each in machines if each is not None) if all(machines) else ("", "")
        if old != new:
            yield f"another machine: its {name} was {old}, and is {new} now"


def _compared(before: BenchedEngine, after: BenchedEngine) -> tuple[list[ComparedFigure], list[str]]:
    found, notes = list[ComparedFigure](), list[str]()
    for size in after.sizes:
        where = f"{after.name} at {size.services:,} Services"
        if (earlier := before.at(size.services)) is None:
            notes.append(f"{where}: the stored run has no such number")
            continue
        if failed := size.failure or earlier.failure:
            notes.append(f"{where}: {'now' if size.failure else 'in the stored run'} not measured: {failed}")
            continue
        lacking = 0
        for figure in Figure:
            old, new = earlier.values.get(figure, ()), size.values.get(figure, ())
            medians = earlier.median(figure), size.median(figure)
            if min(len(old), len(new)) < 2 or medians[0] is None or medians[1] is None:
                lacking += bool(old or new)
                continue
            found.append(
                ComparedFigure(
                    engine=after.name,
                    services=size.services,
                    figure=figure,
                    before=medians[0],
                    after=medians[1],
                    chance=difference_p_value(*_logarithms(old, new)),
                )
            )
        if lacking:
            notes.append(f"{where}: {lacking} figures lack a second round in one of the runs")
    return found, notes


def _logarithms(before: Sequence[float], after: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The logarithms of both; the values as they are where one is 0."""
    if min(*before, *after) <= 0:
        return before, after
    return [math.log(each) for each in before], [math.log(each) for each in after]


def corrected(chances: Sequence[float]) -> list[float]:
    """Each probability, corrected for their number by Holm's method.

    Example:
        >>> corrected([0.01, 0.04, 0.001])
        [0.02, 0.04, 0.003]
    """
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    found, least = [1.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, chances[number] * (len(chances) - rank)))
        found[number] = least
    return found
