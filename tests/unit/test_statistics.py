"""The numbers a reader can check in a table of the chi-square distribution, and the edges."""

import pytest
import scipy  # its modules load on their first use

from proxylab.statistics import difference_p_value, flows_needed, spread_p_value


@pytest.mark.parametrize(
    ("backends", "flows"),
    [(1, 1), (2, 941), (3, 1991), (5, 4294), (16, 19980), (100, 20868), (5000, 146188)],
)
def test_flows_needed(backends: int, flows: int) -> None:
    assert flows_needed(backends) == flows


def test_flows_needed_wants_a_backend() -> None:
    with pytest.raises(ValueError, match="at least one backend, not 0"):
        flows_needed(0)


@pytest.mark.parametrize(
    ("counts", "p_value"),
    [
        ([500, 500], 1.0),
        ([531, 469], 0.04995),  # statistic 3.844; 3.841 is the 5 % point at one degree of freedom
        ([700, 650, 650], 0.2865),  # statistic 2.5 at two degrees: exp(-1.25)
    ],
)
def test_p_value_known_points(counts: list[int], p_value: float) -> None:
    assert spread_p_value(counts, [1.0] * len(counts)) == pytest.approx(p_value, rel=1e-3)


def test_shares_are_scaled() -> None:
    assert spread_p_value([300, 100], [3, 1]) == 1.0
    assert spread_p_value([300, 100], [0.75, 0.25]) == 1.0
    assert spread_p_value([100, 300], [3, 1]) < 1e-9


def test_a_hit_where_the_share_is_zero_cannot_be_chance() -> None:
    assert spread_p_value([1000, 1], [1, 0]) == 0.0
    assert spread_p_value([1000, 0], [1, 0]) == 1.0


def test_nothing_sent_says_nothing() -> None:
    assert spread_p_value([0, 0, 0], [1, 1, 1]) == 1.0


def test_above_sixteen_an_endpoint_never_hit_is_seen_although_its_bin_looks_full() -> None:
    counts = [1400] * 32
    counts[0], counts[1] = 0, 2800
    assert spread_p_value(counts, [1.0] * 32) < 1e-9
    counts[0], counts[1] = 1, 2799
    assert spread_p_value(counts, [1.0] * 32) == 1.0


def test_above_sixteen_few_flows_may_miss_an_endpoint() -> None:
    assert spread_p_value([1] * 39 + [0], [1.0] * 40) > 1e-3


@pytest.mark.parametrize(
    ("counts", "shares"),
    [([1, 2], [1.0]), ([-1, 2], [1.0, 1.0]), ([1, 2], [1.0, -1.0]), ([0, 0], [0.0, 0.0]), ([], [])],
)
def test_nonsense_is_refused(counts: list[int], shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        spread_p_value(counts, shares)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([10.0, 10.2, 9.9, 10.1], [11.0, 11.3, 10.9, 11.2]),
        ([1.0, 2.0], [1.5, 9.0, 4.0]),
        ([5.0, 5.1, 5.2, 4.9, 5.0], [5.0, 5.05, 5.1, 5.2, 4.95]),
        ([1e-6, 1.1e-6, 0.9e-6], [2e-6, 2.5e-6, 1.5e-6, 2.1e-6]),
        ([float(each) for each in range(40)], [each + 0.5 for each in range(60)]),
    ],
)
def test_the_chance_of_a_difference_is_that_of_welchs_test(before: list[float], after: list[float]) -> None:
    wanted = scipy.stats.ttest_ind(before, after, equal_var=False).pvalue
    assert difference_p_value(before, after) == pytest.approx(wanted, rel=1e-9)
    assert difference_p_value(after, before) == pytest.approx(wanted, rel=1e-9)


def test_without_variance_samples_differ_for_certain_or_not_at_all() -> None:
    assert difference_p_value([8.0, 8.0], [8.0, 8.0, 8.0]) == 1.0
    assert difference_p_value([8.0, 8.0], [9.0, 9.0]) == 0.0


def test_one_value_is_no_sample() -> None:
    with pytest.raises(ValueError, match="two values"):
        difference_p_value([1.0], [1.0, 2.0])
