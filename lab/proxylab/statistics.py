"""Whether a spread of flows over backends, or a difference between two samples, can be chance.

The module tests counts against shares by chi-square, and computes how many flows such a test needs. It tests the
means of two samples by Welch's test (``difference_p_value``).

Theory of operation. A proxy that picks one of ``k`` backends at random, flow by flow, makes multinomial counts.
Pearson's statistic over ``n`` flows is then chi-square distributed with ``k - 1`` degrees of freedom; under a spread
whose shares are ``p`` instead of ``q`` it is non-central, with ``n * sum((p - q)**2 / q)`` as non-centrality. A spread
is rejected only below ``SIGNIFICANCE``, so small that no CI run ever meets it by chance; the price is more flows, and
``flows_needed`` computes it.

Above ``MOST_BINS`` endpoints a test of each share would need far too many flows: the test puts neighbouring endpoints
into bins and tests the bins' shares, and every single endpoint must have got a flow besides.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

SIGNIFICANCE = 1e-9
"""A spread less likely than this is not even."""

POWER = 0.999
"""The probability of rejecting a spread with one changed share."""

SHARE_CHANGE = 0.3
"""The change of one share, as a fraction of it, that a test must show with ``POWER``."""

FINE_CHANGE = 0.1
"""The change that a test shows where its author leaves the number of flows to the lab and flows are packets."""

MOST_BINS = 16
"""The largest number of shares that the test takes one by one."""

_MOST_TERMS = 10_000
"""Bound of every series below; they converge in tens to hundreds of terms."""


@cache
def flows_needed(backends: int) -> int:
    """The smallest number of flows that can show an uneven spread over ``backends``.

    With that many flows the test of ``spread_p_value`` at ``SIGNIFICANCE`` rejects, with probability ``POWER``, a
    spread in which one share (of a bin, above ``MOST_BINS`` backends) is larger or smaller by ``SHARE_CHANGE`` of
    itself while the others share the difference. Above ``MOST_BINS`` it is also enough for an even spread to miss
    an endpoint with a probability below ``SIGNIFICANCE`` only.

    Raises:
        ValueError: for fewer than one backend.

    Example:
        >>> flows_needed(3)
        1991
    """
    if backends < 1:
        raise ValueError(f"a spread has at least one backend, not {backends}")
    if backends == 1:
        return 1
    return flows_needed_for((1 / backends,) * backends)


@cache
def flows_needed_for(shares: tuple[float, ...], change: float = SHARE_CHANGE) -> int:
    """``flows_needed`` for backends with these shares, which are above 0 and sum to 1, and another ``change``.

    Example:
        >>> flows_needed_for((0.5, 0.5), 0.03)
        94038
    """
    if len(shares) == 1:
        return 1
    bins = [share for _, share in _binned([(0, share) for share in shares])] if len(shares) > MOST_BINS else shares
    freedom = len(bins) - 1
    critical = _critical_value(freedom)
    # The smallest bin needs the most flows. With q as its share, sum((p - q)**2 / q) comes to this:
    smallest = min(bins)
    per_flow = change**2 * smallest / (1 - smallest)
    low, high = 1, 2
    while _non_central_cdf(critical, freedom, high * per_flow) > 1 - POWER:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _non_central_cdf(critical, freedom, middle * per_flow) > 1 - POWER:
            low = middle
        else:
            high = middle
    if len(shares) <= MOST_BINS:
        return high
    return max(high, _flows_to_hit(len(shares), min(shares)))


def flows_to_stick(backends: int) -> int:
    """The smallest number of flows of one client that hardly all go to one backend without session affinity.

    "Hardly" means with a probability below ``SIGNIFICANCE``, if each flow goes to one of ``backends`` by chance.

    Raises:
        ValueError: for fewer than two backends, which cannot show affinity.

    Example:
        >>> flows_to_stick(2), flows_to_stick(3)
        (31, 20)
    """
    if backends < 2:
        raise ValueError(f"flows can stick to one of two backends or more, not of {backends}")
    return math.floor(-math.log(SIGNIFICANCE) / math.log(backends)) + 2


def flows_to_hit_all(backends: int) -> int:
    """The smallest number of flows after which an even spread leaves no backend without a flow.

    "No" means with a probability of at most ``SIGNIFICANCE`` (bounded by the sum over backends).

    Raises:
        ValueError: for fewer than one backend.

    Example:
        >>> flows_to_hit_all(2), flows_to_hit_all(3)
        (31, 54)
    """
    if backends < 1:
        raise ValueError(f"a spread has at least one backend, not {backends}")
    if backends == 1:
        return 1
    return _flows_to_hit(backends, 1 / backends)


def _flows_to_hit(backends: int, smallest: float) -> int:
    # k * (1 - smallest)**n < SIGNIFICANCE, solved for n.
    return math.floor(math.log(backends / SIGNIFICANCE) / -math.log1p(-smallest)) + 1


def spread_p_value(counts: Sequence[int], shares: Sequence[float]) -> float:
    """The probability of counts at least this far from ``shares``, if chance distributes the flows.

    Args:
        counts: flows per endpoint, in an order that does not depend on the counts.
        shares: the share of each endpoint, in the same order; the function scales them to a sum of 1. An
            endpoint with share 0 must get no flow.

    Returns:
        A probability: of Pearson's statistic, and above ``MOST_BINS`` endpoints the smaller of that over bins and,
        where an endpoint got no flow, of any endpoint without a flow (its upper bound, the sum over endpoints).

    Raises:
        ValueError: if the two do not match, or hold a negative number, or no share is above 0.
    """
    if len(counts) != len(shares):
        raise ValueError(f"{len(counts)} counts against {len(shares)} shares")
    total_share = math.fsum(shares)
    if min(counts, default=0) < 0 or min(shares, default=0.0) < 0 or not total_share > 0:
        raise ValueError("counts and shares are not negative, and some share is above 0")
    if any(count and not share for count, share in zip(counts, shares, strict=True)):
        return 0.0
    cells = [(count, share / total_share) for count, share in zip(counts, shares, strict=True) if share]
    if len(cells) <= MOST_BINS:
        return _pearson(cells)
    flows = sum(counts)
    missed = 1.0
    if any(count == 0 for count, _ in cells):
        missed = math.fsum((1 - share) ** flows for _, share in cells)
    return min(missed, _pearson(_binned(cells)))


def _binned(cells: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Neighbours joined into ``MOST_BINS`` bins, whose sizes differ by one endpoint at most."""
    edges = [len(cells) * number // MOST_BINS for number in range(MOST_BINS + 1)]
    bins = [cells[start:end] for start, end in pairwise(edges)]
    return [(sum(count for count, _ in each), math.fsum(share for _, share in each)) for each in bins]


def _pearson(cells: Sequence[tuple[int, float]]) -> float:
    """The p-value of Pearson's statistic over (count, share) cells whose shares are above 0 and sum to 1."""
    flows = sum(count for count, _ in cells)
    if flows == 0 or len(cells) == 1:
        return 1.0
    statistic = math.fsum((count - flows * share) ** 2 / (flows * share) for count, share in cells)
    return _survival(statistic, len(cells) - 1)


def _survival(statistic: float, freedom: int) -> float:
    """The chance that a chi-square variable exceeds ``statistic``: the upper incomplete gamma function, regularised."""
    shape, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    return 1 - _lower_series(shape, x) if x < shape + 1 else _upper_fraction(shape, x)


def _lower_series(shape: float, x: float) -> float:
    """P(shape, x) by its power series (DLMF 8.11.4); for x below shape + 1, where it converges fast."""
    term = total = 1 / shape
    for step in range(1, _MOST_TERMS):
        term *= x / (shape + step)
        total += term
        if term < total * 1e-17:
            break
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape))


def _upper_fraction(shape: float, x: float) -> float:
    """Q(shape, x) by its continued fraction (DLMF 8.9.2, even part), with Lentz's method; for x above shape + 1."""
    tiny = 1e-300
    denominator = x + 1 - shape
    upper = 1 / tiny
    lower = 1 / denominator
    fraction = lower
    for step in range(1, _MOST_TERMS):
        numerator = -step * (step - shape)
        denominator += 2
        lower = 1 / ((numerator * lower + denominator) or tiny)
        upper = (denominator + numerator / upper) or tiny
        change = lower * upper
        fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return fraction * math.exp(shape * math.log(x) - x - math.lgamma(shape))


def _critical_value(freedom: int) -> float:
    """The statistic whose p-value is ``SIGNIFICANCE``, by bisection (the survival function falls everywhere)."""
    low, high = 0.0, 1.0
    while _survival(high, freedom) > SIGNIFICANCE:
        low, high = high, high * 2
    for _ in range(64):
        middle = (low + high) / 2
        if _survival(middle, freedom) > SIGNIFICANCE:
            low = middle
        else:
            high = middle
    return high


def _non_central_cdf(statistic: float, freedom: int, non_centrality: float) -> float:
    """The chance that a non-central chi-square variable stays at or below ``statistic``.

    It is a mixture: with ``j`` drawn from a Poisson distribution of mean ``non_centrality / 2``, a central variable of
    ``freedom + 2j`` degrees. P(a + 1, x) = P(a, x) - x**a * exp(-x) / gamma(a + 1) (DLMF 8.8.5) leads from one ``j``
    to the next.
    """
    mean, x, shape = non_centrality / 2, statistic / 2, freedom / 2
    central = 1 - _survival(statistic, freedom)
    total = 0.0
    for index in range(_MOST_TERMS):
        weight = math.exp(index * math.log(mean) - mean - math.lgamma(index + 1))
        total += weight * central
        central = max(0.0, central - math.exp(shape * math.log(x) - x - math.lgamma(shape + 1)))
        shape += 1
        if index > mean and weight < 1e-18:
            break
    return total


def difference_p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """The probability of means at least this far apart, if both samples come from one distribution of that mean.

    It is Welch's test, two-sided: the samples may have different variances, and are taken for normally distributed.
    Samples without any variance differ for certain, or not at all.

    Raises:
        ValueError: for a sample of fewer than two.

    Example:
        >>> round(difference_p_value([10.0, 10.2, 9.9, 10.1], [11.0, 11.3, 10.9, 11.2]), 6)
        0.000151
    """
    if min(len(before), len(after)) < 2:
        raise ValueError("a sample needs two values at least: one has no variance")
    means = [math.fsum(each) / len(each) for each in (before, after)]
    errors = [
        math.fsum((value - mean) ** 2 for value in each) / (len(each) - 1) / len(each)
        for each, mean in zip((before, after), means, strict=True)
    ]
    if not (error := math.fsum(errors)):
        return 1.0 if means[0] == means[1] else 0.0
    statistic = (means[0] - means[1]) ** 2 / error
    freedom = error**2 / math.fsum(e**2 / (len(each) - 1) for e, each in zip(errors, (before, after), strict=True))
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + statistic))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b); its fraction converges fast below the mean (DLMF 8.17.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(whole) / a * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), with Lentz's method."""
    tiny = 1e-300
    upper, lower = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = lower
    for step in range(1, _MOST_TERMS):
        at = a + 2 * step
        for numerator in (
            step * (b - step) * x / ((at - 1) * at),
            -(a + step) * (a + b + step) * x / (at * (at + 1)),
        ):
            lower = 1 / ((1 + numerator * lower) or tiny)
            upper = (1 + numerator / upper) or tiny
            change = lower * upper
            fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return fraction
