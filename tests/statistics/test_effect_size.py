"""Cohen's d, Hedges' g and d_z, and what their intervals cover."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import cohens_d, hedges_correction, hedges_g, paired_effect, t_test
from orthograd.statistics.effect import exact_interval, normal_interval

pytestmark = pytest.mark.filterwarnings("error")

VALUES = st.integers(-1000, 1000).map(lambda x: x / 10)
ARM = st.lists(VALUES, min_size=2, max_size=7)


def test_d_by_hand() -> None:
    assert cohens_d([1.0, 3.0], [0.0, 2.0, 4.0, 6.0]).value == pytest.approx(-1 / math.sqrt(22 / 4))


def test_g_by_hand() -> None:
    assert hedges_correction(4) == pytest.approx(1 / (math.sqrt(2) * math.sqrt(math.pi) / 2))
    assert hedges_g([1.0, 3.0], [0.0, 2.0, 4.0, 6.0]).value == pytest.approx(-hedges_correction(4) / math.sqrt(22 / 4))


def test_d_z_by_hand() -> None:
    assert paired_effect([3.0, 5.0, 4.0], [1.0, 1.0, 1.0]).value == pytest.approx(3)


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


@given(ARM, ARM)
@settings(max_examples=40)
def test_swapping_the_arms_flips_d_and_g(one: list[float], two: list[float]) -> None:
    for effect in (cohens_d, hedges_g):
        found, swapped = effect(one, two), effect(two, one)
        assert swapped.value == pytest.approx(-found.value)
        assert swapped.exact == pytest.approx((-found.exact.high, -found.exact.low), abs=1e-9)
        assert found.normal is not None
        assert swapped.normal == pytest.approx((-found.normal.high, -found.normal.low), abs=1e-9)


@given(ARM, ARM)
@settings(max_examples=40)
def test_effects_do_not_depend_on_shift_and_unit(one: list[float], two: list[float]) -> None:
    moved = [[8 * value + 1024 for value in arm] for arm in (one, two)]
    assert cohens_d(*moved).value == pytest.approx(cohens_d(one, two).value, rel=1e-6, abs=1e-9)


@given(ARM, ARM)
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
    """Five seeds an arm, a true effect of 2, 40 000 experiments; both ends grow with d and are interpolated."""
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
        assert (all_.value, all_.exact, all_.normal) == (-math.inf, (-math.inf,) * 2, (-math.inf,) * 2)
    assert paired_effect([1, 2, 3], [0, 1, 2]).value == math.inf
    assert paired_effect([1, 2, 3], [1, 2, 3]).value == 0


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="more than 1 degree of freedom, got 1"):
        hedges_correction(1)
    for effect in (cohens_d, hedges_g, paired_effect):
        with pytest.raises(ValueError, match="alpha between 0 and 1, got -1"):
            effect([1, 2], [3, 5], alpha=-1)
