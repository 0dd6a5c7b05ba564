"""Two one-sided tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import tost

pytestmark = pytest.mark.filterwarnings("error")

ARM = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=7)


def test_by_hand() -> None:
    # Differences −1 and 1: difference 0, error 1, one degree of freedom, P(T > 1) = ¼.
    found = tost([0.0, 2.0], [1.0, 1.0], margin=1.0, alpha=0.25)
    assert (found.p_below, found.p_above, found.p) == pytest.approx((0.25, 0.25, 0.25))
    assert found.interval == pytest.approx((-1, 1))


def test_it_is_two_tests_of_scipy() -> None:
    one, two = np.random.default_rng(0).normal(size=(2, 9))
    found, differences = tost(one, two, margin=0.8), one - two
    below = stats.ttest_1samp(differences, -0.8, alternative="greater").pvalue
    above = stats.ttest_1samp(differences, 0.8, alternative="less").pvalue
    assert (found.p_below, found.p_above, found.p) == pytest.approx((below, above, max(below, above)))
    found = tost(one, two[:6], margin=0.8, paired=False)
    below = stats.ttest_ind(one + 0.8, two[:6], equal_var=False, alternative="greater").pvalue
    above = stats.ttest_ind(one - 0.8, two[:6], equal_var=False, alternative="less").pvalue
    assert (found.p_below, found.p_above, found.p) == pytest.approx((below, above, max(below, above)))


@given(ARM, ARM, st.floats(0.1, 60), st.booleans())
def test_it_passes_where_the_90_percent_interval_lies_inside(
    one: list[float], two: list[float], margin: float, paired: bool
) -> None:
    assume(not paired or len(one) == len(two))
    found = tost(one, two, margin=margin, paired=paired)
    assume(abs(found.p - 0.05) > 1e-9)
    assert (found.p < 0.05) == found.interval.is_inside(margin)
    assert tost(two, one, margin=margin, paired=paired).p == pytest.approx(found.p)


def test_it_passes_wrongly_in_one_of_twenty_at_the_margin() -> None:
    samples = np.random.default_rng(1).normal(1.0, 1, (2000, 40))  # the true difference is the margin
    passed = np.mean([tost(sample, np.zeros(40), margin=1.0).p < 0.05 for sample in samples])
    assert abs(passed - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize("paired", [True, False])
def test_without_spread_the_difference_decides(paired: bool) -> None:
    assert tost([1, 1], [1, 1], margin=0.1, paired=paired).p == 0
    assert tost([2, 2], [1, 1], margin=1.5, paired=paired).p == 0
    assert tost([2, 2], [1, 1], margin=0.5, paired=paired).p == 1


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="margin > 0, got 0"):
        tost([1, 2], [1, 2], margin=0)
    with pytest.raises(ValueError, match=r"alpha below 0\.5.* got 0\.5"):
        tost([1, 2], [1, 2], margin=1, alpha=0.5)
