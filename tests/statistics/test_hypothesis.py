"""Tests of a difference, of equivalence, and of many differences at once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import holm, tost, wilcoxon_test

pytestmark = pytest.mark.filterwarnings("error")

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_wilcoxon_by_hand() -> None:
    result = wilcoxon_test([1.0, 5.0, 9.0], [2.0, 3.0, 4.0])  # differences −1, 2, 5: the ranks below zero sum to 1
    assert (result.statistic, result.degrees) == (1, None)
    assert result.p == pytest.approx(2 * 2 / 8)  # of the 8 sign patterns ∅ and {1} have a sum of at most 1


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_is_the_count_over_all_signs(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.4, 1, 8)
    ranks = np.abs(differences).argsort().argsort() + 1
    observed = ranks[differences > 0].sum()
    sums = np.array(list(itertools.product((0, 1), repeat=8))) @ ranks
    tail = min(np.mean(sums <= observed), np.mean(sums >= observed))
    assert wilcoxon_test(differences, np.zeros(8)).p == pytest.approx(min(1, 2 * tail))


def test_wilcoxon_does_not_depend_on_shift_unit_and_order() -> None:
    one, two = np.random.default_rng(0).normal(size=(2, 12))
    expected = wilcoxon_test(one, two).p
    assert wilcoxon_test(two, one).p == pytest.approx(expected)
    assert wilcoxon_test(1e-9 * (one + 7), 1e-9 * (two + 7)).p == pytest.approx(expected)
    assert wilcoxon_test(one[::-1], two[::-1]).p == pytest.approx(expected)


def test_wilcoxon_sees_ties_through_rounding() -> None:
    exact = wilcoxon_test([3, 5, 7, 3], [2, 4, 8, 1])
    rounded = wilcoxon_test([0.3, 0.5, 0.7, 0.3], [0.2, 0.4, 0.8, 0.1])
    assert (rounded.statistic, rounded.p) == pytest.approx((exact.statistic, exact.p))


def test_wilcoxon_without_differences_finds_none() -> None:
    assert wilcoxon_test([1, 2, 3], [1, 2, 3]).p == 1
    assert wilcoxon_test([1, 2], [1, 3]).p == 1  # one difference can go one way or the other


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


@given(P_VALUES)
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for p, corrected_p in zip(p_values, corrected, strict=True):
        assert p <= corrected_p <= min(1, len(p_values) * p)
    for (p, corrected_p), (q, other) in itertools.combinations(zip(p_values, corrected, strict=True), 2):
        assert p > q or corrected_p <= other
        assert p < q or corrected_p >= other


@given(P_VALUES)
def test_holm_rejects_as_its_procedure_does(p_values: list[float]) -> None:
    """Step down from the smallest p, and stop at the first that is not below α/(m − rank)."""
    rejected = set()
    for rank, position in enumerate(np.argsort(p_values, kind="stable")):
        if not (len(p_values) - rank) * p_values[position] < 0.05:
            break
        rejected.add(int(position))
    assert {i for i, p in enumerate(holm(p_values)) if p < 0.05} == rejected


@given(st.floats(0, 1))
def test_holm_of_one_question_is_its_p(p: float) -> None:
    assert holm([p]) == [p]


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_holm_names_what_is_no_probability(p: float) -> None:
    with pytest.raises(ValueError, match=f"got {p!r} at position 1"):
        holm([0.5, p])


SAMPLE = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=7)


def test_by_hand() -> None:
    # Differences −1 and 1: difference 0, error 1, one degree of freedom, P(T > 1) = ¼.
    result = tost([0.0, 2.0], [1.0, 1.0], margin=1.0, alpha=0.25)
    assert (result.p_below, result.p_above, result.p) == pytest.approx((0.25, 0.25, 0.25))
    assert result.interval == pytest.approx((-1, 1))


def test_it_is_two_tests_of_scipy() -> None:
    one, two = np.random.default_rng(0).normal(size=(2, 9))
    result, differences = tost(one, two, margin=0.8), two - one
    below = stats.ttest_1samp(differences, -0.8, alternative="greater").pvalue
    above = stats.ttest_1samp(differences, 0.8, alternative="less").pvalue
    assert (result.p_below, result.p_above, result.p) == pytest.approx((below, above, max(below, above)))
    result = tost(one, two[:6], margin=0.8, paired=False)
    below = stats.ttest_ind(two[:6] + 0.8, one, equal_var=False, alternative="greater").pvalue
    above = stats.ttest_ind(two[:6] - 0.8, one, equal_var=False, alternative="less").pvalue
    assert (result.p_below, result.p_above, result.p) == pytest.approx((below, above, max(below, above)))


@given(SAMPLE, SAMPLE, st.floats(0.1, 60), st.booleans())
def test_it_passes_where_the_90_percent_interval_lies_inside(
    one: list[float], two: list[float], margin: float, paired: bool
) -> None:
    assume(not paired or len(one) == len(two))
    result = tost(one, two, margin=margin, paired=paired)
    assume(abs(result.p - 0.05) > 1e-9)
    assert (result.p < 0.05) == result.interval.is_inside(margin)
    assert tost(two, one, margin=margin, paired=paired).p == pytest.approx(result.p)


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
