"""Cohen's d, Hedges' g and d_z, what their intervals cover, the noncentral t behind them, and the paper's printed d."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import cohens_d, from_effect_size, hedges_correction, hedges_g, paired_effect, t_test
from orthograd.statistics.effect import exact_interval, noncentral_t_cdf, noncentrality_interval, normal_interval

pytestmark = pytest.mark.filterwarnings("error")

VALUES = st.integers(-1000, 1000).map(lambda x: x / 10)
SAMPLE = st.lists(VALUES, min_size=2, max_size=7)


def test_d_by_hand() -> None:
    assert cohens_d([1.0, 3.0], [0.0, 2.0, 4.0, 6.0]).value == pytest.approx(1 / math.sqrt(22 / 4))


def test_g_by_hand() -> None:
    assert hedges_correction(4) == pytest.approx(1 / (math.sqrt(2) * math.sqrt(math.pi) / 2))
    assert hedges_g([1.0, 3.0], [0.0, 2.0, 4.0, 6.0]).value == pytest.approx(hedges_correction(4) / math.sqrt(22 / 4))


def test_d_z_by_hand() -> None:
    assert paired_effect([1.0, 1.0, 1.0], [3.0, 5.0, 4.0]).value == pytest.approx(3)


@pytest.mark.parametrize("degrees", [2, 5, 8, 38, 200])
def test_the_correction_is_the_mean_of_the_noncentral_t(degrees: int) -> None:
    assert hedges_correction(degrees) == pytest.approx(1 / stats.nct.mean(degrees, 1.0))
    approximation = float(1 - Fraction(3, 4 * degrees - 1))
    assert hedges_correction(degrees) == pytest.approx(approximation, abs=0.4 / degrees**2)


def test_g_is_right_on_average_where_d_is_too_large() -> None:
    generator = np.random.default_rng(0)
    samples = generator.normal(size=(3000, 2, 4)) + np.array([[1.0], [0.0]])
    d = np.array([cohens_d_of(one, two) for one, two in samples])
    error = d.std() / math.sqrt(len(d))
    assert d.mean() > 1 + 4 * error
    assert abs(hedges_correction(6) * d.mean() - 1) < 4 * error


def cohens_d_of(one: np.ndarray, two: np.ndarray) -> float:
    return float((one.mean() - two.mean()) / math.sqrt((one.var(ddof=1) + two.var(ddof=1)) / 2))


def test_the_exact_intervals_end_where_scipy_has_t_in_the_tails() -> None:
    one, two = np.random.default_rng(0).normal([[1.2], [0.0]], 1, (2, 8))
    effects = {"student": (cohens_d(one, two), 2.0, 14), "paired": (paired_effect(one, two), math.sqrt(8), 7)}
    for method, (effect, root, degrees) in effects.items():
        t = t_test(one, two, method=method).statistic  # type: ignore[arg-type]
        tails = stats.nct.cdf(t, degrees, root * np.array(effect.exact))
        assert tuple(tails) == pytest.approx((0.975, 0.025))
    assert paired_effect(one, two).normal is None


def test_the_normal_interval_by_hand() -> None:
    half = 1.959963984540054 * math.sqrt(2 / 5 + 2.4**2 / 20)
    assert normal_interval(2.4, 5, 5) == pytest.approx((2.4 - half, 2.4 + half))


def test_g_has_the_exact_interval_of_d_and_a_normal_one_around_itself() -> None:
    d, g = cohens_d([1.0, 3.0], [0.0, 2.0, 4.0, 6.0]), hedges_g([1.0, 3.0], [0.0, 2.0, 4.0, 6.0])
    assert g.exact == d.exact
    half = 1.959963984540054 * math.sqrt(6 / 8 + g.value**2 / 12)
    assert g.normal == pytest.approx((g.value - half, g.value + half))


@given(SAMPLE, SAMPLE)
@settings(max_examples=40)
def test_swapping_the_samples_flips_d_and_g(one: list[float], two: list[float]) -> None:
    for effect in (cohens_d, hedges_g):
        size, swapped = effect(one, two), effect(two, one)
        assert swapped.value == pytest.approx(-size.value)
        assert swapped.exact == pytest.approx((-size.exact.high, -size.exact.low), abs=1e-9)
        assert size.normal is not None
        assert swapped.normal == pytest.approx((-size.normal.high, -size.normal.low), abs=1e-9)


@given(SAMPLE, SAMPLE)
@settings(max_examples=40)
def test_effects_do_not_depend_on_shift_and_unit(one: list[float], two: list[float]) -> None:
    moved = [[8 * value + 1024 for value in sample] for sample in (one, two)]
    assert cohens_d(*moved).value == pytest.approx(cohens_d(one, two).value, rel=1e-6, abs=1e-9)


@given(SAMPLE, SAMPLE)
@settings(max_examples=40)
def test_zero_is_in_the_exact_interval_where_student_is_not_significant(one: list[float], two: list[float]) -> None:
    p = t_test(one, two, method="student").p
    assume(abs(p - 0.05) > 1e-6)
    assert (0 in cohens_d(one, two).exact) == (p > 0.05)


@given(st.lists(VALUES, min_size=2, max_size=9))
@settings(max_examples=40)
def test_zero_is_in_the_interval_of_d_z_where_the_paired_test_is_not_significant(differences: list[float]) -> None:
    zeros = [0.0] * len(differences)
    p = t_test(differences, zeros).p
    assume(abs(p - 0.05) > 1e-6)
    assert (0 in paired_effect(differences, zeros).exact) == (p > 0.05)


def test_the_exact_interval_covers_and_the_normal_one_does_not() -> None:
    """Five seeds a method, a true effect of 2, 40 000 experiments; both ends grow with d and are interpolated."""
    generator = np.random.default_rng(1)
    one, two = generator.normal(2, 1, (40_000, 5)), generator.normal(0, 1, (40_000, 5))
    d = (one.mean(1) - two.mean(1)) / np.sqrt((one.var(1, ddof=1) + two.var(1, ddof=1)) / 2)
    grid = np.linspace(d.min(), d.max(), 300)
    covered = {}
    for interval in (exact_interval, normal_interval):
        low, high = np.array([interval(float(x), 5, 5) for x in grid]).T
        covered[interval] = np.mean((np.interp(d, grid, low) <= 2) & (np.interp(d, grid, high) >= 2))
    assert abs(covered[exact_interval] - 0.95) < 0.005  # 4.6 standard errors
    assert 0.935 < covered[normal_interval] < 0.943


def test_without_spread_the_effect_is_zero_or_infinite() -> None:
    for effect in (cohens_d, hedges_g):
        none, all_ = effect([1, 1, 1], [1, 1, 1]), effect([1, 1, 1], [2, 2, 2])
        assert none.value == 0
        assert 0 in none.exact
        assert none.normal is not None
        assert 0 in none.normal
        assert (all_.value, all_.exact, all_.normal) == (math.inf, (math.inf,) * 2, (math.inf,) * 2)
    assert paired_effect([1, 2, 3], [0, 1, 2]).value == -math.inf
    assert paired_effect([1, 2, 3], [1, 2, 3]).value == 0


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="more than 1 degree of freedom, got 1"):
        hedges_correction(1)
    for effect in (cohens_d, hedges_g, paired_effect):
        with pytest.raises(ValueError, match="alpha between 0 and 1, got -1"):
            effect([1, 2], [3, 5], alpha=-1)


def test_at_zero_it_is_normal() -> None:
    assert noncentral_t_cdf(0.0, 5, 1.2) == pytest.approx(stats.norm.cdf(-1.2), abs=1e-14)


@pytest.mark.parametrize("degrees", [1, 2, 8, 38])
@pytest.mark.parametrize("t", [-30.0, -2.0, 0.1, 3.0, 50.0])
def test_without_noncentrality_it_is_student(t: float, degrees: int) -> None:
    assert noncentral_t_cdf(t, degrees, 0.0) == pytest.approx(stats.t.cdf(t, degrees), abs=1e-12)


@given(st.integers(1, 300), st.floats(-40, 40), st.floats(-4, 4))
def test_it_is_that_of_scipy(degrees: int, t: float, away: float) -> None:
    noncentrality = t + away * (1 + abs(t) / math.sqrt(2 * degrees))
    expected = stats.nct.cdf(t, degrees, noncentrality)
    assume(1e-6 < expected < 1 - 1e-6)  # further out scipy's series gives up
    assert noncentral_t_cdf(t, degrees, noncentrality) == pytest.approx(expected, abs=1e-10)


def test_many_degrees_are_normal_and_far_tails_are_numbers() -> None:
    assert noncentral_t_cdf(5.0, 1e12, 4.0) == pytest.approx(stats.norm.cdf(1), abs=1e-9)
    assert noncentral_t_cdf(-5.74, 5800, 3.8) == pytest.approx(0, abs=1e-15)  # scipy 1.17: NaN
    assert noncentral_t_cdf(2.0, 8, 1e6) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("degrees", [1, 4, 38])
@pytest.mark.parametrize("t", [-1e15, -20.0, -0.3, 0.0, 1.0, 7.0, 1e4])
def test_the_interval_ends_where_t_is_in_the_tails(t: float, degrees: int) -> None:
    low, high = noncentrality_interval(t, degrees, alpha=0.1)
    assert noncentral_t_cdf(t, degrees, low) == pytest.approx(0.95, abs=1e-9)
    assert noncentral_t_cdf(t, degrees, high) == pytest.approx(0.05, abs=1e-9)


def test_for_large_t_the_interval_is_that_of_the_standard_deviation() -> None:
    expected = 1e9 * np.sqrt(stats.chi2.ppf([0.025, 0.975], 8) / 8)
    assert noncentrality_interval(1e9, 8) == pytest.approx(tuple(expected), rel=1e-9)
    assert noncentrality_interval(-math.inf, 8) == (-math.inf, -math.inf)


class Printed(NamedTuple):
    """A row as the paper prints it; as text, for the number of digits."""

    network: str
    seeds: int
    metric: str
    d: str
    low: str
    high: str
    p: str


# Hedges, "OrthoGrad Improves Neural Calibration": table 1 (ResNet-18) and the table of WideResNet-28-10.
ROWS = [
    Printed("resnet", 20, "top1_accuracy", "-0.05", "-0.67", "0.57", "0.86"),
    Printed("resnet", 20, "top5_accuracy", "-0.35", "-0.97", "0.28", "0.28"),
    Printed("resnet", 20, "loss", "0.64", "0.005", "1.28", "0.05"),
    Printed("resnet", 20, "ece", "0.48", "-0.15", "1.11", "0.14"),
    Printed("resnet", 20, "brier", "0.28", "-0.34", "0.91", "0.37"),
    Printed("resnet", 20, "entropy", "-1.11", "-1.77", "-0.44", "0.001"),
    Printed("resnet", 20, "max_softmax", "1.06", "0.40", "1.72", "0.002"),
    Printed("resnet", 20, "max_logit", "1.52", "0.82", "2.22", "2.5e-5"),
    Printed("resnet", 20, "logit_variance", "2.00", "1.25", "2.77", "2e-7"),
    Printed("wideresnet", 5, "top1_accuracy", "-0.35", "-1.60", "0.90", "0.59"),
    Printed("wideresnet", 5, "top5_accuracy", "0.50", "-0.76", "1.76", "0.44"),
    Printed("wideresnet", 5, "loss", "2.56", "0.89", "4.24", "0.004"),
    Printed("wideresnet", 5, "ece", "2.40", "0.77", "4.02", "0.015"),
    Printed("wideresnet", 5, "brier", "0.86", "-0.43", "2.15", "0.21"),
    Printed("wideresnet", 5, "entropy", "-4.18", "-6.40", "-1.97", "2e-4"),
    Printed("wideresnet", 5, "max_softmax", "2.91", "1.13", "4.69", "0.002"),
    Printed("wideresnet", 5, "max_logit", "11.20", "6.14", "16.27", "3e-6"),
    Printed("wideresnet", 5, "logit_variance", "15.45", "8.57", "22.34", "6e-6"),
]
ABOVE_STUDENT = {("wideresnet", "ece"), ("wideresnet", "max_logit"), ("wideresnet", "logit_variance")}
BELOW_STUDENT = {("wideresnet", "top5_accuracy")}


def rounded_to(text: str) -> tuple[float, float]:
    """The range of the numbers that print so: "0.28" stands for 0.275 to 0.285."""
    value = Decimal(text)
    half = Decimal(5).scaleb(int(value.as_tuple().exponent) - 1)
    return float(value - half), float(value + half)


def computed(row: Printed, what: str) -> tuple[float, float]:
    """The range of a result over the effect sizes that print as the row's; all of them are monotone in d."""
    results = [from_effect_size(d, row.seeds) for d in rounded_to(row.d)]
    values = [
        {"low": x.normal.low, "high": x.normal.high, "p": x.p, "largest_welch_p": x.largest_welch_p or 0}[what]
        for x in results
    ]
    return min(values), max(values)


def gap(row: Printed, what: str) -> float:
    """How far the printed number lies above (+) or below (−) what rounding allows; 0 if it is reproduced."""
    (low, high), (smallest, largest) = computed(row, what), rounded_to(getattr(row, what))
    return max(smallest - high, 0.0) or min(largest - low, 0.0)


def test_the_printed_intervals_are_the_normal_approximation_but_for_one_last_digit() -> None:
    """17 of 18 rows; of ResNet's logit variance the upper end prints 2.77, where 2.7647 is the most for d = 2.00."""
    off = {(row.network, row.metric, end): gap(row, end) for row in ROWS for end in ("low", "high") if gap(row, end)}
    assert off == {("resnet", "logit_variance", "high"): pytest.approx(0.0003, abs=0.0001)}


def test_fourteen_of_eighteen_printed_p_are_students() -> None:
    off = {(row.network, row.metric): gap(row, "p") for row in ROWS}
    assert {row for row, miss in off.items() if miss > 0} == ABOVE_STUDENT
    assert {row for row, miss in off.items() if miss < 0} == BELOW_STUDENT


@pytest.mark.parametrize(
    "row", [row for row in ROWS if (row.network, row.metric) in ABOVE_STUDENT], ids=lambda r: r.metric
)
def test_three_p_of_wideresnet_lie_between_students_and_the_largest_that_welch_can_give(row: Printed) -> None:
    """With 8 degrees of freedom p is far smaller than printed, with 4 larger: samples of unequal variance."""
    smallest, largest = rounded_to(row.p)
    assert computed(row, "p")[1] < smallest
    assert largest < computed(row, "largest_welch_p")[0]


def test_top5_p_of_wideresnet_is_just_below_every_t_test() -> None:
    """0.44 is printed where Student's, the smallest of them, is 0.448 at the least: cut off, not rounded."""
    (row,) = (row for row in ROWS if (row.network, row.metric) in BELOW_STUDENT)
    smallest = computed(row, "p")[0]
    assert smallest == pytest.approx(0.448, abs=0.0005)
    assert math.floor(100 * smallest) / 100 == float(row.p)


def test_from_effect_size_by_hand() -> None:
    reported = from_effect_size(1.0, 2, 2)  # t = 1 with 2 degrees of freedom: p = 1 − 1/√3
    assert (reported.t, reported.degrees, reported.p) == (pytest.approx(1), 2, pytest.approx(1 - 1 / math.sqrt(3)))
    assert reported.largest_welch_p == pytest.approx(0.5)


def test_samples_and_their_effect_size_say_the_same() -> None:
    one, two = np.random.default_rng(0).normal(size=8), np.random.default_rng(1).normal(size=5)
    effect, test = cohens_d(one, two), t_test(one, two, method="student")
    reported = from_effect_size(effect.value, 8, 5)
    assert (reported.t, reported.p) == pytest.approx((test.statistic, test.p))
    assert (reported.exact, reported.normal) == (
        pytest.approx(tuple(effect.exact)),
        pytest.approx(tuple(effect.normal or ())),
    )
    assert reported.largest_welch_p is None


def test_p_is_that_of_scipy_from_its_own_summary() -> None:
    oracle = stats.ttest_ind_from_stats(2.4, 1, 5, 0, 1, 5)
    assert from_effect_size(2.4, 5).p == pytest.approx(oracle.pvalue)


@pytest.mark.parametrize("seed", range(5))
def test_welch_never_exceeds_its_bound(seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, two = generator.normal(1, 1, 5), generator.normal(0, 10.0 ** generator.uniform(-3, 0), 5)
    reported = from_effect_size(cohens_d(one, two).value, 5)
    assert reported.largest_welch_p is not None
    assert reported.p <= t_test(one, two, method="welch").p <= reported.largest_welch_p


def test_bad_effects_are_named() -> None:
    with pytest.raises(ValueError, match="at least 2 seeds for both methods, got 5 and 1"):
        from_effect_size(1.0, 5, 1)
    with pytest.raises(ValueError, match="effect size, got nan"):
        from_effect_size(math.nan, 5)
