"""What of two runs has changed by more than noise."""

import random

import pytest
from benched import SIZES, benched, engine

from proxylab.features.bench.bench_text import comparison_lines
from proxylab.features.bench.comparison import compare, corrected
from proxylab.features.bench.figures import BenchedEngine, BenchedSize, BenchReport, Figure


def noisy(seed: int, factor: float = 1.0) -> BenchReport:
    """Five rounds of twenty figures with noise of 5 %; all of one run are larger by a factor."""
    drawn = random.Random(seed)
    sizes = tuple(
        BenchedSize(
            services=100 * number,
            values={each: tuple(factor * drawn.lognormvariate(0, 0.05) for _ in range(5)) for each in list(Figure)[:5]},
        )
        for number in range(1, 5)
    )
    return benched(BenchedEngine(engine="embedded/iptables", kernel="host", sizes=sizes))


def test_a_run_has_not_changed_from_itself() -> None:
    found = compare(benched(engine()), benched(engine()))
    assert len(found.figures) == 5 * len(SIZES)
    assert found.changed == ()
    assert found.notes == ()


def test_what_is_slower_by_more_than_noise_is_worse() -> None:
    found = compare(benched(engine()), benched(engine(slower=1.3)))
    worse = {(each.figure, each.services) for each in found.figures if each.is_worse}
    slow = (Figure.COLD_START, Figure.LATENCY_P50, Figure.CONNECTIONS)
    assert worse == {(figure, services) for figure in slow for services in SIZES}
    assert {each.figure for each in found.changed} == {*slow}


def test_fewer_connections_a_second_are_worse_and_more_are_better() -> None:
    for slower, is_worse in ((1.3, True), (0.7, False)):
        found = compare(benched(engine()), benched(engine(slower=slower)))
        (rate,) = [each for each in found.changed if each.figure is Figure.CONNECTIONS and each.services == 100]
        assert rate.is_worse is is_worse


def test_a_change_within_the_noise_is_none() -> None:
    assert compare(benched(engine()), benched(engine(slower=1.005))).changed == ()


def test_other_rules_differ_for_certain() -> None:
    """They have no noise."""
    more = engine()
    sizes = [each.with_round({}) for each in more.sizes]
    values = {**sizes[0].values, Figure.RULES: (801.0,) * 5}
    sizes[0] = BenchedSize(services=sizes[0].services, values=values)
    changed = BenchedEngine(engine=more.engine, kernel=more.kernel, sizes=tuple(sizes))
    (found,) = compare(benched(engine()), benched(changed)).changed
    assert (found.figure, found.services) == (Figure.RULES, 100)
    assert found.chance < 1e-50


def test_noise_alone_hardly_ever_changes_anything() -> None:
    """Of 200 pairs of runs in which nothing has changed, one in a hundred may say that something has."""
    alarms = sum(bool(compare(noisy(seed), noisy(1000 + seed)).changed) for seed in range(200))
    assert alarms <= 8


def test_a_tenth_is_found_in_most_figures_with_noise_of_a_twentieth() -> None:
    found = [len(compare(noisy(seed), noisy(1000 + seed, 1.3)).changed) for seed in range(20)]
    assert sum(found) > 0.8 * 20 * 20


def test_what_cannot_be_compared_is_told() -> None:
    before = benched(engine(), engine("embedded/nftables"), release="6.1.0")
    after = benched(
        engine(rounds=1),
        engine("embedded/nftables", failure="it ended"),
        engine("kube-proxy/iptables"),
        release="6.6.0",
        endpoints=3,
    )
    notes = "\n".join(compare(before, after).notes)
    for part in (
        "2 endpoints",
        "6.1.0",
        "6.6.0",
        "kube-proxy/iptables",
        "a second round",
        "now not measured: it ended",
    ):
        assert part in notes


def test_the_same_engine_on_another_kernel_is_another_engine() -> None:
    found = compare(benched(engine()), benched(engine(kernel="uml")))
    assert found.figures == ()
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("chances", "wanted"),
    [
        ([], []),
        ([0.2], [0.2]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.9], [1.0, 1.0]),
    ],
)
def test_chances_are_corrected_for_their_number(chances: list[float], wanted: list[float]) -> None:
    assert corrected(chances) == pytest.approx(wanted)


def test_the_lines_name_each_change_with_its_size() -> None:
    text = "\n".join(comparison_lines(compare(benched(engine()), benched(engine(slower=2.0))), 100))
    assert "9 changed by more than noise" in text
    assert "worse:" in text
    assert "better:" not in text
    times = [line.split()[-1] for line in text.splitlines() if line.strip().startswith("embedded/iptables")]
    assert sorted(times) == ["0.50"] * 3 + ["2.00"] * 6
    same = "\n".join(comparison_lines(compare(benched(engine()), benched(engine())), 100))
    assert "nothing has changed" in same
