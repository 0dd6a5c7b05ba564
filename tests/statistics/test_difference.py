"""The mean difference and its intervals, by t and by bootstrap."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import Interval, bootstrap_interval, difference_interval, estimated_difference, t_test
from orthograd.statistics.difference import Method

pytestmark = pytest.mark.filterwarnings("error")

METHODS = get_args(Method)
VALUES = st.integers(-1000, 1000).map(lambda x: x / 10)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=9).map(lambda pairs: tuple(zip(*pairs, strict=True)))


def draw(seed: int, *sizes: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(i, 1 + 2 * i, size) for i, size in enumerate(sizes)]


def test_paired_by_hand() -> None:
    estimate = estimated_difference([1.0, 1.0, 1.0], [3.0, 5.0, 4.0])  # differences 2, 4, 3
    assert (estimate.difference, estimate.error, estimate.degrees) == (3.0, pytest.approx(1 / math.sqrt(3)), 2)


def test_student_and_welch_by_hand() -> None:
    baseline, candidate = [1.0, 3.0], [0.0, 2.0, 4.0, 6.0]  # variances 2 and 20/3
    student = estimated_difference(baseline, candidate, method="student")
    assert (student.difference, student.degrees) == (1.0, 4)
    assert student.error == pytest.approx(math.sqrt((2 + 20) / 4 * (1 / 2 + 1 / 4)))
    welch = estimated_difference(baseline, candidate, method="welch")
    assert welch.error == pytest.approx(math.sqrt(1 + 5 / 3))
    assert welch.degrees == pytest.approx((1 + 5 / 3) ** 2 / (1 / 1 + (5 / 3) ** 2 / 3))


@pytest.mark.parametrize("seed", range(3))
def test_t_tests_are_those_of_scipy(seed: int) -> None:
    one, two = draw(seed, 7, 5)
    for method, equal in (("student", True), ("welch", False)):
        result = t_test(one, two, method=method)
        oracle = stats.ttest_ind_from_stats(two.mean(), two.std(ddof=1), 5, one.mean(), one.std(ddof=1), 7, equal)
        assert (result.statistic, result.p) == pytest.approx(tuple(oracle), rel=1e-12)
    one, two = draw(seed, 7, 7)
    result, oracle = t_test(one, two), stats.ttest_rel(two, one)
    assert (result.statistic, result.p) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_intervals_are_those_of_scipy(alpha: float) -> None:
    one, two = draw(3, 6, 6)
    oracles = {
        "paired": stats.ttest_rel(two, one),
        "welch": stats.ttest_ind(two, one, equal_var=False),
        "student": stats.ttest_ind(two, one),
    }
    for method, oracle in oracles.items():
        expected = oracle.confidence_interval(1 - alpha)
        interval = difference_interval(one, two, method=method, alpha=alpha)  # type: ignore[arg-type]
        assert interval == pytest.approx((expected.low, expected.high), rel=1e-12)


@given(PAIRS, st.sampled_from(METHODS))
def test_zero_is_in_the_interval_where_p_is_not_below_alpha(pairs: tuple[list[float], ...], method: Method) -> None:
    p = t_test(*pairs, method=method).p
    assume(abs(p - 0.05) > 1e-9)
    assert (0 in difference_interval(*pairs, method=method)) == (p > 0.05)


@given(PAIRS, st.sampled_from(METHODS))
def test_swapping_the_samples_flips_the_sign(pairs: tuple[list[float], ...], method: Method) -> None:
    result, swapped = t_test(*pairs, method=method), t_test(*pairs[::-1], method=method)
    assert swapped.statistic == pytest.approx(-result.statistic)
    assert swapped.p == pytest.approx(result.p)
    low, high = difference_interval(*pairs[::-1], method=method)
    assert difference_interval(*pairs, method=method) == pytest.approx((-high, -low))


@given(PAIRS, st.sampled_from(METHODS))
def test_tests_do_not_depend_on_shift_and_unit(pairs: tuple[list[float], ...], method: Method) -> None:
    moved = [[8 * value + 1024 for value in sample] for sample in pairs]
    result, expected = t_test(*moved, method=method), t_test(*pairs, method=method)
    assert (result.statistic, result.p) == pytest.approx((expected.statistic, expected.p), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_without_variance_p_is_one_or_zero(method: Method) -> None:
    same, apart = t_test([2, 2, 2], [2, 2, 2], method=method), t_test([2, 2, 2], [3, 3, 3], method=method)
    assert (same.statistic, same.p) == (0, 1)
    assert (apart.statistic, apart.p) == (math.inf, 0)
    assert difference_interval([2, 2, 2], [3, 3, 3], method=method) == (1, 1)


def test_without_variance_welch_has_students_degrees() -> None:
    assert t_test([2, 2, 2], [3, 3], method="welch").degrees == 3


@pytest.mark.parametrize("method", METHODS)
def test_differences_that_cancel_but_for_rounding_are_none(method: Method) -> None:
    assert 0.1 + 0.2 - 0.3 != 0
    result = t_test([0.1, 0.2, -0.3], [0, 0, 0], method=method)
    assert (result.statistic, result.p) == (0, 1)


def test_welch_uses_the_degrees_of_the_only_sample_that_varies() -> None:
    assert t_test([1, 2, 4], [5, 5, 5, 5], method="welch").degrees == pytest.approx(2)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="got 'median'"):
        t_test([1, 2], [3, 4], method="median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"alpha between 0 and 1, got 1\.5"):
        difference_interval([1, 2], [3, 4], alpha=1.5)


def test_interval_includes_its_ends() -> None:
    assert 1.0 in Interval(0.0, 1.0)
    assert 1.1 not in Interval(0.0, 1.0)
    assert "1" not in Interval(0.0, 1.0)
    assert not Interval(-1.0, 0.5).is_inside(1.0)
    assert Interval(-0.9, 0.5).is_inside(1.0)


def efron(resampled: np.ndarray, estimate: float, leaving_one_out: list[np.ndarray], alpha: float) -> np.ndarray:
    """BCa from the resampled estimates and, for each sample, the estimates with one value left out."""
    bias = stats.norm.ppf(np.mean(resampled < estimate))
    influence = [(len(part) - 1) * (part.mean() - part) / len(part) for part in leaving_one_out]
    cubes, squares = sum((x**3).sum() for x in influence), sum((x**2).sum() for x in influence)
    z = bias + stats.norm.ppf([alpha / 2, 1 - alpha / 2])
    return np.quantile(resampled, stats.norm.cdf(bias + z / (1 - cubes / (6 * squares**1.5) * z)))


def left_out(values: np.ndarray) -> np.ndarray:
    return np.array([np.delete(values, i).mean() for i in range(len(values))])


def test_two_pairs_by_hand() -> None:
    # The resampled means are 1, 2, 3 with probabilities ¼, ½, ¼: both tails of 2.5% are at the ends.
    assert bootstrap_interval([0.0, 0.0], [1.0, 3.0]) == pytest.approx((1, 3))


def test_pairs_as_efron_wrote_it() -> None:
    generator = np.random.default_rng(0)
    differences = generator.exponential(size=15)
    resampled = generator.choice(differences, (200_000, 15)).mean(axis=1)
    expected = efron(resampled, differences.mean(), [left_out(differences)], 0.1)
    interval = bootstrap_interval(np.full(15, 3.0), differences + 3, alpha=0.1, resamples=50_000)
    assert interval == pytest.approx(tuple(expected), abs=0.02 * differences.std())


def test_independent_samples_as_efron_wrote_it() -> None:
    generator = np.random.default_rng(1)
    one, two = generator.exponential(size=12), generator.normal(size=9)
    resampled = generator.choice(one, (200_000, 12)).mean(axis=1) - generator.choice(two, (200_000, 9)).mean(axis=1)
    parts = [left_out(one) - two.mean(), one.mean() - left_out(two)]
    expected = efron(resampled, one.mean() - two.mean(), parts, 0.1)
    interval = bootstrap_interval(two, one, paired=False, alpha=0.1, resamples=50_000)
    assert interval == pytest.approx(tuple(expected), abs=0.02)


def test_pairs_are_drawn_as_pairs() -> None:
    shared = np.random.default_rng(2).normal(size=20)
    candidate = shared + np.random.default_rng(3).normal(size=20) / 100
    together, apart = (bootstrap_interval(shared, candidate, paired=paired) for paired in (True, False))
    assert (together.high - together.low) * 20 < apart.high - apart.low


def test_it_covers_the_truth_as_often_as_it_says() -> None:
    samples = np.random.default_rng(4).normal(1.0, 1, (300, 30))
    covered = [1.0 in bootstrap_interval(np.zeros(30), sample, alpha=0.2, resamples=499) for sample in samples]
    assert abs(np.mean(covered) - 0.8) < 4 * math.sqrt(0.16 / 300)


def test_with_few_seeds_it_is_narrower_than_the_t_interval() -> None:
    samples = np.random.default_rng(5).normal(size=(40, 5))
    ratios = []
    for sample in samples:
        interval, trusted = (
            bootstrap_interval(sample, np.zeros(5), resamples=999),
            difference_interval(sample, np.zeros(5)),
        )
        ratios.append((interval.high - interval.low) / (trusted.high - trusted.low))
    assert np.mean(ratios) < 0.8


@pytest.mark.parametrize("paired", [True, False])
def test_it_moves_with_shift_and_unit_and_repeats_with_its_seed(paired: bool) -> None:
    one, two = np.random.default_rng(6).normal(size=(2, 9))
    expected = bootstrap_interval(one, two, paired=paired)
    assert bootstrap_interval(one, two, paired=paired) == expected
    assert bootstrap_interval(one, two, paired=paired, seed=1) != expected
    moved = bootstrap_interval(4e-200 * one, 4e-200 * (two - 0.5), paired=paired)
    assert (moved.low / 4e-200 + 0.5, moved.high / 4e-200 + 0.5) == pytest.approx(tuple(expected))


def test_swapping_the_samples_flips_it() -> None:
    one, two = np.random.default_rng(7).normal(size=(2, 9))
    low, high = bootstrap_interval(two, one)
    assert bootstrap_interval(one, two) == pytest.approx((-high, -low))


@pytest.mark.parametrize("paired", [True, False])
def test_without_spread_it_is_the_difference(paired: bool) -> None:
    assert bootstrap_interval([2, 2], [5, 5], paired=paired) == (3, 3)
    assert bootstrap_interval([0.3, 0.3, 0.3], [0.3, 0.3, 0.3], paired=paired) == (0, 0)


@pytest.mark.parametrize(("one", "two"), [([1, 2], [5, 5]), ([0, 0, 0, 1], [0, 0, 0, 0]), ([1, 2], [3, 5])])
@pytest.mark.parametrize("resamples", [1, 9999])
@pytest.mark.parametrize("paired", [True, False])
def test_tiny_and_nearly_constant_samples_give_numbers(
    one: list[float], two: list[float], resamples: int, paired: bool
) -> None:
    low, high = bootstrap_interval(one, two, paired=paired, resamples=resamples)
    assert min(two) - max(one) - 1e-11 <= low <= high <= max(two) - min(one) + 1e-11


def test_bad_options_of_the_bootstrap_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1 resample, got 0"):
        bootstrap_interval([1, 2], [3, 4], resamples=0)
    with pytest.raises(ValueError, match="alpha between 0 and 1, got 0"):
        bootstrap_interval([1, 2], [3, 4], alpha=0)
