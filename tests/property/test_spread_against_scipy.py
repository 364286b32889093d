"""The lab's own statistics against scipy's, over random counts; chance alone never counts as uneven."""

import random
from itertools import pairwise

import pytest
import scipy  # its modules load on their first use: each worker collects this file, and one runs it
from hypothesis import given
from hypothesis import strategies as st

from proxylab.statistics import (
    FINE_CHANGE,
    MOST_BINS,
    POWER,
    SIGNIFICANCE,
    flows_needed,
    flows_needed_for,
    spread_p_value,
)


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=MOST_BINS).filter(any))
def test_p_value_is_scipys(counts: list[int]) -> None:
    expected = scipy.stats.chisquare(counts).pvalue
    assert spread_p_value(counts, [1.0] * len(counts)) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@given(st.data(), st.integers(2, MOST_BINS))
def test_p_value_with_unequal_shares_is_scipys(data: st.DataObject, size: int) -> None:
    counts = data.draw(st.lists(st.integers(0, 900), min_size=size, max_size=size).filter(any))
    shares = data.draw(st.lists(st.floats(0.05, 9), min_size=size, max_size=size))
    scale = sum(counts) / sum(shares)
    expected = scipy.stats.chisquare(counts, [share * scale for share in shares], sum_check=False).pvalue
    assert spread_p_value(counts, shares) == pytest.approx(expected, rel=1e-6, abs=1e-300)


@given(st.integers(2, 120))
def test_flows_needed_is_the_smallest_number_with_the_power(backends: int) -> None:
    """The test computes the non-centrality from the shares, not by the formula under test."""
    needed = flows_needed(backends)
    bins = min(backends, MOST_BINS)
    edges = [backends * number // bins for number in range(bins + 1)]
    shares = [(end - start) / backends for start, end in pairwise(edges)]
    critical = scipy.stats.chi2.isf(SIGNIFICANCE, bins - 1)

    def power(flows: int) -> float:
        at = shares.index(min(shares))
        change = 0.3 * shares[at]
        rest = 1 - shares[at]
        moved = [s - change if i == at else s * (1 + change / rest) for i, s in enumerate(shares)]
        distance = sum((p - q) ** 2 / q for p, q in zip(moved, shares, strict=True))
        return float(scipy.stats.ncx2.sf(critical, bins - 1, flows * distance))

    assert power(needed) >= POWER - 1e-9
    assert power(needed - 1) < POWER + 1e-9 or backends > MOST_BINS


@pytest.mark.parametrize("backends", [2, 3, 7, 16, 17, 60])
def test_chance_is_not_called_uneven_and_a_changed_share_is(backends: int) -> None:
    chance = random.Random(backends)  # a seed, so that the test is the same every day
    flows = flows_needed(backends)
    even = [0] * backends
    for pod in chance.choices(range(backends), k=flows):
        even[pod] += 1
    assert spread_p_value(even, [1.0] * backends) > 1e-6
    starved = [0, *even[1:]]
    assert spread_p_value(starved, [1.0] * backends) < SIGNIFICANCE


@pytest.mark.parametrize("change", [0.3, FINE_CHANGE, 0.06, 0.03])
def test_the_power_over_two_backends_is_exact(change: float) -> None:
    """The number of flows comes from an approximation, so this adds up the binomial distribution of the counts."""
    flows = flows_needed_for((0.5, 0.5), change)
    fewest = next(count for count in range(flows // 2, flows) if _rejects(count, flows))

    def power(share: float) -> float:
        return float(
            scipy.stats.binom.sf(fewest - 1, flows, share) + scipy.stats.binom.cdf(flows - fewest, flows, share)
        )

    assert power(0.5) < SIGNIFICANCE * 1.1
    assert power(0.5 * (1 + change)) == pytest.approx(POWER, abs=5e-4)
    assert power(0.5 * (1 + change / 2)) < 0.1


def _rejects(count: int, flows: int) -> bool:
    return spread_p_value([count, flows - count], [1.0, 1.0]) < SIGNIFICANCE


@pytest.mark.parametrize("backends", [3, 4])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_tenth_of_a_share_shows_in_simulated_packets(backends: int, sign: int) -> None:
    even = [1 / backends] * backends
    flows = flows_needed_for(tuple(even), FINE_CHANGE)
    change = sign * FINE_CHANGE / backends
    skewed = [even[0] + change, *(share - change / (backends - 1) for share in even[1:])]
    drawn = scipy.stats.multinomial(flows, skewed, seed=backends).rvs(2000)
    seen = sum(spread_p_value([*map(int, counts)], even) < SIGNIFICANCE for counts in drawn)
    assert seen >= 1990
    assert flows_needed(backends) < flows
