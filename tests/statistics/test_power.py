"""Power and the number of seeds, against published tables and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import from_effect_size, independent_power, paired_power, seeds_needed, t_test

pytestmark = pytest.mark.filterwarnings("error")


def test_no_effect_is_found_as_often_as_alpha_says() -> None:
    assert paired_power(0.0, 7, alpha=0.03) == pytest.approx(0.03)
    assert independent_power(0.0, 7, 4, alpha=0.03) == pytest.approx(0.03)


def test_one_degree_of_freedom_by_hand() -> None:
    # Two pairs at α = ½: |T| > 1 with T = (Z + δ)/|Y|, that is |Z + δ| > |Y|. In the turned axes U = Z + Y and
    # V = Z − Y that is (U + δ)(V + δ) > 0, both of variance 2 and independent.
    same = stats.norm.cdf(1.5 / math.sqrt(2))
    assert paired_power(1.5 / math.sqrt(2), 2, alpha=0.5) == pytest.approx(same**2 + (1 - same) ** 2)


@pytest.mark.parametrize(
    ("effect", "power", "paired", "seeds"),
    [  # R's power.t.test, rounded up
        (0.2, 0.8, False, 394),
        (0.5, 0.8, False, 64),
        (0.8, 0.8, False, 26),
        (0.5, 0.9, False, 86),
        (0.2, 0.8, True, 199),
        (0.5, 0.8, True, 34),
        (0.8, 0.8, True, 15),
    ],
)
def test_the_number_of_seeds_is_the_published_one(effect: float, power: float, paired: bool, seeds: int) -> None:
    assert seeds_needed(effect, power=power, paired=paired) == seeds
    assert seeds_needed(-effect, power=power, paired=paired) == seeds


@given(st.floats(0.05, 5), st.floats(0.1, 0.99), st.booleans(), st.sampled_from([0.001, 0.05, 0.2]))
@settings(max_examples=50)
def test_one_seed_less_falls_short(effect: float, power: float, paired: bool, alpha: float) -> None:
    power_with = paired_power if paired else independent_power
    seeds = seeds_needed(effect, power=power, paired=paired, alpha=alpha)
    assert power_with(effect, seeds, alpha=alpha) >= power
    assert seeds == 2 or power_with(effect, seeds - 1, alpha=alpha) < power


def test_power_is_how_often_the_test_finds_the_effect() -> None:
    generator = np.random.default_rng(0)
    trials, tolerance = 40_000, 4 * math.sqrt(0.25 / 40_000)
    pairs = generator.normal(0.9, 1, (trials, 6))
    assert paired_power(0.9, 6) == pytest.approx(
        np.mean(stats.ttest_1samp(pairs, 0, axis=1).pvalue < 0.05), abs=tolerance
    )
    one, two = generator.normal(0.9, 1, (trials, 8)), generator.normal(0, 1, (trials, 5))
    share = np.mean(stats.ttest_ind(one, two, axis=1).pvalue < 0.05)
    assert independent_power(0.9, 8, 5) == pytest.approx(share, abs=tolerance)


def test_achieved_power_is_p_in_another_unit() -> None:
    """At p = α the power at the observed effect is near one half, whatever the data."""
    critical = stats.t.isf(0.025, 19)
    differences = stats.zscore(np.random.default_rng(1).normal(size=20), ddof=1) + critical / math.sqrt(20)
    assert t_test(differences, np.zeros(20)).p == pytest.approx(0.05)
    assert paired_power(float(critical / math.sqrt(20)), 20) == pytest.approx(0.5, abs=0.03)


def test_extreme_plans_have_an_answer() -> None:
    assert seeds_needed(50.0) == 2
    # z_{1−α/2} + z_{0.8} = 2.8016, and n = (2.8016 / d_z)²
    assert seeds_needed(1e-4) == pytest.approx(2.80158**2 * 1e8, rel=1e-4)
    # Where scipy's noncentral t gives NaN:
    z = stats.norm.isf(5e-9) + stats.norm.ppf(0.8)
    assert seeds_needed(0.1, paired=False, alpha=1e-8) == pytest.approx(2 * z**2 / 0.01, rel=0.01)


def test_bad_plans_are_named() -> None:
    with pytest.raises(ValueError, match="effect of 0"):
        seeds_needed(0.0)
    with pytest.raises(ValueError, match=r"power between 0 and 1, got 1\.0"):
        seeds_needed(0.5, power=1.0)
    with pytest.raises(ValueError, match="finite effect size, got nan"):
        seeds_needed(math.nan)
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        paired_power(0.5, 1)
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        independent_power(0.5, 8, 1)
    with pytest.raises(ValueError, match="alpha between 0 and 1, got 0"):
        paired_power(0.5, 5, alpha=0)


@pytest.mark.parametrize("seeds", [2.5, True, "3", None])
def test_seeds_that_are_no_whole_number_are_refused(seeds: object) -> None:
    for function in (paired_power, independent_power, from_effect_size):
        with pytest.raises(TypeError, match=f"expected a whole number of seeds, got {seeds!r}"):
            function(0.5, seeds)  # type: ignore[operator]


def test_an_effect_too_small_for_any_number_of_seeds_is_refused() -> None:
    assert seeds_needed(1e-8) == pytest.approx(7.849e16, rel=1e-3)
    for effect in (1e-12, -1e-160, 1e-300):
        with pytest.raises(ValueError, match=f"no number of seeds up to 2⁶⁰ detects an effect of {effect}"):
            seeds_needed(effect)


def test_an_alpha_that_float64_cannot_resolve_is_refused() -> None:
    assert paired_power(0.0, 7, alpha=1e-12) == pytest.approx(1e-12, rel=0.01)
    for function in (lambda alpha: paired_power(0.5, 4, alpha=alpha), lambda alpha: seeds_needed(0.5, alpha=alpha)):
        with pytest.raises(ValueError, match="expected alpha of 1e-12 or more, got 1e-300"):
            function(1e-300)
