"""The BCa interval against a plain implementation of Efron's formulas, and over many samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orthograd.statistics import bootstrap_interval, difference_interval

pytestmark = pytest.mark.filterwarnings("error")


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
    # The resampled means are 1, 2, 3 with probabilities ¼, ½, ¼: both tails of 2.5 % are at the ends.
    assert bootstrap_interval([1.0, 3.0], [0.0, 0.0]) == pytest.approx((1, 3))


def test_pairs_as_efron_wrote_it() -> None:
    generator = np.random.default_rng(0)
    differences = generator.exponential(size=15)
    resampled = generator.choice(differences, (200_000, 15)).mean(axis=1)
    expected = efron(resampled, differences.mean(), [left_out(differences)], 0.1)
    found = bootstrap_interval(differences + 3, np.full(15, 3.0), alpha=0.1, resamples=50_000)
    assert found == pytest.approx(tuple(expected), abs=0.02 * differences.std())


def test_independent_arms_as_efron_wrote_it() -> None:
    generator = np.random.default_rng(1)
    one, two = generator.exponential(size=12), generator.normal(size=9)
    resampled = generator.choice(one, (200_000, 12)).mean(axis=1) - generator.choice(two, (200_000, 9)).mean(axis=1)
    parts = [left_out(one) - two.mean(), one.mean() - left_out(two)]
    expected = efron(resampled, one.mean() - two.mean(), parts, 0.1)
    found = bootstrap_interval(one, two, paired=False, alpha=0.1, resamples=50_000)
    assert found == pytest.approx(tuple(expected), abs=0.02)


def test_pairs_are_drawn_as_pairs() -> None:
    shared = np.random.default_rng(2).normal(size=20)
    candidate = shared + np.random.default_rng(3).normal(size=20) / 100
    together, apart = (bootstrap_interval(shared, candidate, paired=paired) for paired in (True, False))
    assert (together.high - together.low) * 20 < apart.high - apart.low


def test_it_covers_the_truth_as_often_as_it_says() -> None:
    samples = np.random.default_rng(4).normal(1.0, 1, (300, 30))
    covered = [1.0 in bootstrap_interval(sample, np.zeros(30), alpha=0.2, resamples=499) for sample in samples]
    assert abs(np.mean(covered) - 0.8) < 4 * math.sqrt(0.16 / 300)


def test_with_few_seeds_it_is_narrower_than_the_t_interval() -> None:
    samples = np.random.default_rng(5).normal(size=(40, 5))
    ratios = []
    for sample in samples:
        found, trusted = (
            bootstrap_interval(sample, np.zeros(5), resamples=999),
            difference_interval(sample, np.zeros(5)),
        )
        ratios.append((found.high - found.low) / (trusted.high - trusted.low))
    assert np.mean(ratios) < 0.8


@pytest.mark.parametrize("paired", [True, False])
def test_it_moves_with_shift_and_unit_and_repeats_with_its_seed(paired: bool) -> None:
    one, two = np.random.default_rng(6).normal(size=(2, 9))
    expected = bootstrap_interval(one, two, paired=paired)
    assert bootstrap_interval(one, two, paired=paired) == expected
    assert bootstrap_interval(one, two, paired=paired, seed=1) != expected
    moved = bootstrap_interval(4e-200 * one, 4e-200 * (two + 0.5), paired=paired)
    assert (moved.low / 4e-200 + 0.5, moved.high / 4e-200 + 0.5) == pytest.approx(tuple(expected))


def test_swapping_the_arms_flips_it() -> None:
    one, two = np.random.default_rng(7).normal(size=(2, 9))
    low, high = bootstrap_interval(two, one)
    assert bootstrap_interval(one, two) == pytest.approx((-high, -low))


@pytest.mark.parametrize("paired", [True, False])
def test_without_spread_it_is_the_difference(paired: bool) -> None:
    assert bootstrap_interval([5, 5], [2, 2], paired=paired) == (3, 3)
    assert bootstrap_interval([0.3, 0.3, 0.3], [0.3, 0.3, 0.3], paired=paired) == (0, 0)


@pytest.mark.parametrize(("one", "two"), [([1, 2], [5, 5]), ([0, 0, 0, 1], [0, 0, 0, 0]), ([1, 2], [3, 5])])
@pytest.mark.parametrize("resamples", [1, 9999])
@pytest.mark.parametrize("paired", [True, False])
def test_tiny_and_nearly_constant_arms_give_numbers(
    one: list[float], two: list[float], resamples: int, paired: bool
) -> None:
    low, high = bootstrap_interval(one, two, paired=paired, resamples=resamples)
    assert min(one) - max(two) - 1e-11 <= low <= high <= max(one) - min(two) + 1e-11


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1 resample, got 0"):
        bootstrap_interval([1, 2], [3, 4], resamples=0)
    with pytest.raises(ValueError, match="alpha between 0 and 1, got 0"):
        bootstrap_interval([1, 2], [3, 4], alpha=0)
