"""The figures of a round, what follows from several rounds, and how a report is stored."""

import math

import pytest
import scipy  # its modules load on their first use
from benched import SIZES, benched, engine
from msgspec.structs import replace

from proxylab.evidence.timings import ChangeTimes, ConnectionTimes, StartTimes, SyncTimes
from proxylab.features.bench.bench_text import to_json
from proxylab.features.bench.figures import (
    BenchedSize,
    Figure,
    Timings,
    Unit,
    figures_of,
    quantile,
    read_report,
    shown,
)
from proxylab.features.bench.growth import growth


def change(met: float | None = 0.01, *, full: SyncTimes = SyncTimes(), syncs: SyncTimes = SyncTimes()) -> ChangeTimes:  # noqa: B008 - frozen
    return ChangeTimes(met=met, settled=1.0, full=full, syncs=syncs)


def timings(**other: object) -> Timings:
    found = Timings(
        start=StartTimes(change(0.5), engine_bytes=1000, kernel_bytes=2000),
        full_syncs=[change(None, full=SyncTimes(2, 0.8), syncs=SyncTimes(3, 0.9))],
        changes=[change(met, syncs=SyncTimes(2, 0.02)) for met in (0.010, 0.030, 0.020)],
        churn=change(0.3),
        connections=ConnectionTimes(first=(0.1, 0.2, 0.3), established=(0.01, 0.03, 0.02), seconds=1.5),
        rules=80,
    )
    return replace(found, **other)


def test_each_figure_comes_from_its_times() -> None:
    assert figures_of(timings()) == {
        Figure.COLD_START: 0.5,
        Figure.FULL_SYNC: 0.4,
        Figure.ONE_CHANGE: 0.01,
        Figure.CHURN: 0.3,
        Figure.LATENCY_P50: 0.020,
        Figure.LATENCY_P99: 0.030,
        Figure.FIRST_PACKET: 0.2,
        Figure.FIRST_PACKET_P99: 0.3,
        Figure.ESTABLISHED: 0.02,
        Figure.CONNECTIONS: 2.0,
        Figure.ENGINE_MEMORY: 1000.0,
        Figure.KERNEL_MEMORY: 2000.0,
        Figure.RULES: 80.0,
    }


def test_a_full_sync_meanwhile_is_no_part_of_one_change() -> None:
    both = [change(full=SyncTimes(1, 5.0), syncs=SyncTimes(3, 5.2))]
    assert figures_of(timings(changes=both))[Figure.ONE_CHANGE] == pytest.approx(0.1)


def test_where_every_sync_is_full_all_of_them_are_meant() -> None:
    """Mode ipvs does not tell full syncs apart."""
    found = figures_of(timings(full_syncs=[change(None, syncs=SyncTimes(2, 0.6))]))
    assert found[Figure.FULL_SYNC] == pytest.approx(0.3)


def test_what_an_engine_does_not_have_is_left_out() -> None:
    assert Figure.FULL_SYNC not in figures_of(timings(full_syncs=[change(None)]))


@pytest.mark.parametrize(("part", "value"), [(0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100), (0.0, 1)])
def test_a_quantile_is_one_of_the_values(part: float, value: int) -> None:
    assert quantile(range(100, 0, -1), part) == value


def test_a_quantile_of_nothing_is_none() -> None:
    assert quantile([], 0.5) is None


def test_a_power_is_found_with_its_error() -> None:
    found = engine().growth(Figure.COLD_START)
    assert found is not None
    assert found.error is not None
    assert found.exponent == pytest.approx(1.0, abs=1e-9)
    assert 0 < found.error < 0.01
    falling = engine().growth(Figure.CONNECTIONS)
    assert falling is not None
    assert falling.exponent == pytest.approx(-0.5, abs=1e-9)


def test_exponent_and_error_are_those_of_a_regression() -> None:
    points = [(100, 3.0), (100, 3.4), (1000, 21.0), (1000, 19.0), (5000, 160.0), (5000, 171.0)]
    found = growth(points)
    wanted = scipy.stats.linregress([math.log(size) for size, _ in points], [math.log(value) for _, value in points])
    assert found is not None
    assert found.exponent == pytest.approx(wanted.slope)
    assert found.error == pytest.approx(wanted.stderr)


@pytest.mark.parametrize("points", [[], [(100, 1.0)], [(100, 1.0), (100, 2.0)], [(100, 1.0), (1000, 0.0)]])
def test_one_size_shows_no_growth(points: list[tuple[float, float]]) -> None:
    assert growth(points) is None


def test_two_values_show_an_exponent_without_an_error() -> None:
    found = growth([(100, 1.0), (1000, 10.0)])
    assert found is not None
    assert found.exponent == pytest.approx(1.0)
    assert found.error is None


def test_rounds_are_kept_and_the_median_is_that_of_them() -> None:
    size = BenchedSize(services=100)
    for value in (3.0, 1.0, 2.0):
        size = size.with_round({Figure.CHURN: value})
    assert size.values == {Figure.CHURN: (3.0, 1.0, 2.0)}
    assert size.median(Figure.CHURN) == 2.0
    assert size.median(Figure.RULES) is None


def test_a_stored_report_is_read_back() -> None:
    report = benched(engine(), engine("kube-proxy/iptables", failure="it ended"))
    assert read_report(to_json(report)) == report
    assert report.services == SIZES


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no JSON"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no benchmark"):
        read_report(text)


def test_a_report_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        read_report(to_json(replace(benched(engine()), format=2)))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, Unit.SECONDS, "0.00 us"),
        (0.0000123, Unit.SECONDS, "12.3 us"),
        (0.1234, Unit.SECONDS, "123 ms"),
        (75.0, Unit.SECONDS, "75.0 s"),
        (2048.0, Unit.BYTES, "2.00 KiB"),
        (5.0 * (1 << 30), Unit.BYTES, "5.00 GiB"),
        (4321.4, Unit.RATE, "4,321"),
        (None, Unit.SECONDS, "-"),
    ],
)
def test_values_have_three_digits_and_their_unit(value: float | None, unit: Unit, text: str) -> None:
    assert shown(value, unit) == text


def test_each_figure_has_its_meaning() -> None:
    assert all(each.facts.meaning.endswith(".") and each.facts.title for each in Figure)


def test_a_single_sync_has_a_mean_and_none_has_not() -> None:
    assert (SyncTimes(1, 0.5).of_one, SyncTimes().of_one) == (0.5, None)
