"""The noncentral t distribution against scipy's, where scipy's works, and against its limits, where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics.noncentral import noncentral_t_cdf, noncentrality_interval

pytestmark = pytest.mark.filterwarnings("error")


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
