"""Statistics compared with values computed by hand, and their properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.analysis import statistics as s

positive = st.floats(min_value=1e-3, max_value=1e6)
several = st.lists(positive, min_size=2, max_size=10)
pairs = st.lists(st.tuples(positive, positive), min_size=2, max_size=10)


def test_log_mean_by_hand():
    # ln 10, ln 100, ln 1000 = 1, 2, 3 times ln 10: mean 2 ln 10, s = ln 10. t(2; 0.975) = 4.302653, so the
    # half width is 4.302653 / sqrt(3) = 2.484138 times ln 10: 100 times or over 10 ** 2.484138 = 304.886.
    estimate = s.log_mean([10, 100, 1000])
    assert estimate.value == pytest.approx(100)
    assert estimate.low == pytest.approx(100 / 304.886, rel=1e-4)
    assert estimate.high == pytest.approx(100 * 304.886, rel=1e-4)
    assert estimate.n == 3


def test_linear_mean_by_hand():
    # 0, 2, 4: mean 2, s = 2, half width 4.302653 * 2 / sqrt(3) = 4.968276.
    estimate = s.linear_mean([0, 2, 4])
    assert (estimate.value, estimate.n) == (2, 3)
    assert estimate.low == pytest.approx(2 - 4.968276, abs=1e-5)
    assert estimate.high == pytest.approx(2 + 4.968276, abs=1e-5)


def test_paired_ratio_by_hand():
    # Ratios 1/2, 1/4: mean log -1.5 ln 2, s = ln 2 / sqrt(2) = 0.490129. t(1; 0.975) = 12.706205, half
    # width 12.706205 * 0.490129 / sqrt(2) = 4.403617 = 6.353102 ln 2.
    ratio = s.paired_ratio([50, 25], [100, 100])
    assert ratio.value == pytest.approx(2**-1.5)
    assert ratio.low == pytest.approx(2 ** (-1.5 - 6.353102), rel=1e-5)
    assert ratio.high == pytest.approx(2 ** (-1.5 + 6.353102), rel=1e-5)
    assert ratio.spread == pytest.approx(math.log(2) / math.sqrt(2))
    assert ratio.differs is False


def test_pairing_removes_effects_of_a_repetition():
    # Half of the baseline in each repetition, while the machine doubles its speed between repetitions.
    ratio = s.paired_ratio([10, 20, 40], [20, 40, 80])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio.differs is True


def test_one_value_has_no_interval():
    assert s.log_mean([7]) == s.Estimate(pytest.approx(7), None, None, 1)
    assert s.linear_mean([7]) == s.Estimate(7, None, None, 1)
    ratio = s.paired_ratio([3], [4])
    assert (ratio.low, ratio.high, ratio.spread, ratio.differs) == (None, None, None, None)
    assert s.overhead(ratio, gain=True) == s.Overhead(pytest.approx(25), None, None, 1)
    assert s.smallest_detectable(None, 1) is None
    assert s.detectable_percent(None, 1) is None


@pytest.mark.parametrize("values", [[], [1, 0], [1, -2], [1, math.inf], [1, math.nan]])
def test_values_without_a_logarithm_are_rejected(values):
    for function in (s.log_mean, s.geometric_mean):
        with pytest.raises(ValueError):
            function(values)
    with pytest.raises(ValueError):
        s.paired_ratio(values, [1] * len(values))


def test_unpaired_values_are_rejected():
    with pytest.raises(ValueError):
        s.paired_ratio([1, 2], [1])


def test_geometric_mean_by_hand():
    assert s.geometric_mean([1, 4, 16]) == pytest.approx(4)


def test_overheads_by_hand():
    # A throughput ratio of 0.7 [0.6, 0.8] is an overhead of 30 % [20, 40]; the bounds swap.
    ratio = s.Ratio(0.7, 0.6, 0.8, 3, 0.1)
    lost = s.overhead(ratio, gain=True)
    assert (lost.percent, lost.low, lost.high) == pytest.approx((30, 20, 40))
    # A latency ratio of 1.2 [1.1, 1.4] is an overhead of 20 % [10, 40]; the bounds do not swap.
    added = s.overhead(s.Ratio(1.2, 1.1, 1.4, 3, 0.1), gain=False)
    assert (added.percent, added.low, added.high) == pytest.approx((20, 10, 40))


@pytest.mark.parametrize(
    ("n", "effect"),
    # Effect size d/s of a paired two-sided t test, 5 %, 80 %: n = 10, 34 and 199 pairs for effects of 1.0,
    # 0.5 and 0.2 are textbook values (Cohen 1988 rounds n up, so power is just above 0.8).
    [(10, 1.0), (34, 0.5), (199, 0.2)],
)
def test_smallest_detectable_against_textbook(n, effect):
    assert s.smallest_detectable(1.0, n) <= effect < s.smallest_detectable(1.0, n - 1)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_smallest_detectable_by_simulation(n):
    # Without scipy's noncentral t: draw experiments with the difference that should be found.
    import numpy

    rng = numpy.random.default_rng(1)
    difference = s.smallest_detectable(1.0, n)
    draws = rng.normal(difference, 1.0, (200_000, n))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n))
    critical = {2: 12.706205, 3: 4.302653, 5: 2.776445}[n]
    assert (abs(t) > critical).mean() == pytest.approx(0.8, abs=0.005)


def test_detectable_percent():
    d = s.smallest_detectable(0.01, 3)
    assert s.detectable_percent(0.01, 3) == pytest.approx(100 * (math.exp(d) - 1))
    assert s.detectable_percent(0.01, 3, gain=True) == pytest.approx(100 * (1 - math.exp(-d)))
    assert s.detectable_percent(0.0, 3) == 0
    assert math.isfinite(s.detectable_percent(1e6, 2))


@given(several, st.floats(min_value=1e-3, max_value=1e3))
def test_log_mean_scales_with_the_unit(values, factor):
    one, other = s.log_mean(values), s.log_mean([factor * value for value in values])
    assert other.value == pytest.approx(factor * one.value, rel=1e-6)
    if one.high < 1e200 and one.low > 1e-200:
        assert other.low == pytest.approx(factor * one.low, rel=1e-6)
        assert other.high == pytest.approx(factor * one.high, rel=1e-6)


@given(several)
def test_log_mean_lies_within_values_and_interval(values):
    estimate = s.log_mean(values)
    assert min(values) * (1 - 1e-9) <= estimate.value <= max(values) * (1 + 1e-9)
    assert 0 <= estimate.low <= estimate.value * (1 + 1e-12)
    assert estimate.value * (1 - 1e-12) <= estimate.high


@given(pairs)
def test_swapping_sides_inverts_the_ratio(values):
    ours, theirs = [x for x, _ in values], [b for _, b in values]
    ratio, inverse = s.paired_ratio(ours, theirs), s.paired_ratio(theirs, ours)
    assert inverse.value == pytest.approx(1 / ratio.value, rel=1e-9)
    if ratio.high < 1e200 and inverse.high < 1e200:
        assert inverse.low == pytest.approx(1 / ratio.high, rel=1e-6)
    assert inverse.differs == ratio.differs


@given(pairs, st.floats(min_value=1e-3, max_value=1e3))
def test_ratio_does_not_depend_on_unit_or_drift(values, factor):
    ours, theirs = [x for x, _ in values], [b for _, b in values]
    scaled = s.paired_ratio([factor * x for x in ours], [factor * b for b in theirs])
    assert scaled.value == pytest.approx(s.paired_ratio(ours, theirs).value, rel=1e-6)


@given(several)
def test_ratio_of_equal_values_is_one(values):
    ratio = s.paired_ratio(values, values)
    assert (ratio.value, ratio.low, ratio.high, ratio.differs) == (1, 1, 1, False)


@given(st.floats(min_value=1e-6, max_value=1), st.integers(min_value=2, max_value=30))
def test_more_repetitions_detect_less(spread, n):
    assert s.smallest_detectable(spread, n + 1) < s.smallest_detectable(spread, n)
    assert s.smallest_detectable(2 * spread, n) == pytest.approx(2 * s.smallest_detectable(spread, n))
