"""Benchmarks as a run could have measured them, whose figures grow by known powers."""

from collections.abc import Callable, Mapping

from proxylab.features.bench.figures import BenchedEngine, BenchedMachine, BenchedSize, BenchReport, Figure

__all__ = ["SIZES", "benched", "engine"]

SIZES = (100, 1000, 10_000)
NOISE = (0.98, 1.01, 1.0, 1.02, 0.99)
"""What each round differs by."""

POWERS: Mapping[Figure, Callable[[int], float]] = {
    Figure.COLD_START: lambda services: 0.002 * services,
    Figure.LATENCY_P50: lambda services: 0.004 + 0.0 * services,
    Figure.CONNECTIONS: lambda services: 50_000 / services**0.5,
    Figure.ENGINE_MEMORY: lambda services: 30_000.0 * services,
    Figure.RULES: lambda services: 8.0 * services,
}


def engine(
    name: str = "embedded/iptables", *, slower: float = 1.0, rounds: int = 5, failure: str = "", kernel: str = "host"
) -> BenchedEngine:
    """An engine whose every time is ``slower`` times as long; rules have no noise."""
    sizes = []
    for services in SIZES:
        values = {}
        for figure, at in POWERS.items():
            factor = {Figure.CONNECTIONS: 1 / slower, Figure.RULES: 1.0, Figure.ENGINE_MEMORY: 1.0}.get(figure, slower)
            noise = (1.0,) * len(NOISE) if figure is Figure.RULES else NOISE
            values[figure] = tuple(factor * at(services) * each for each in noise[:rounds])
        sizes.append(BenchedSize(services=services, values=values))
    if failure:
        sizes[-1] = BenchedSize(services=SIZES[-1], failure=failure)
    return BenchedEngine(engine=name, kernel=kernel, sizes=tuple(sizes))


def benched(*engines: BenchedEngine, rounds: int = 5, release: str = "6.1.0", endpoints: int = 2) -> BenchReport:
    """A report with these engines."""
    machine = BenchedMachine(release=release, processors=2, processor="A CPU", iptables="iptables v1.8.9 (legacy)")
    return BenchReport(
        proxylab="1.0",
        begun="2026-03-01 09:00 UTC",
        command="proxylab bench --services 100,1000,10000",
        machine=machine,
        endpoints=endpoints,
        rounds=rounds,
        changes=20,
        engines=engines,
    )
