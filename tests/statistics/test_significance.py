"""Wilcoxon's test and Holm's correction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthograd.statistics import holm, wilcoxon_test

pytestmark = pytest.mark.filterwarnings("error")

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_wilcoxon_by_hand() -> None:
    found = wilcoxon_test([1.0, 5.0, 9.0], [2.0, 3.0, 4.0])  # differences −1, 2, 5: the ranks below zero sum to 1
    assert (found.statistic, found.degrees) == (1, None)
    assert found.p == pytest.approx(2 * 2 / 8)  # of the 8 sign patterns ∅ and {1} have a sum of at most 1


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
    for p, found in zip(p_values, corrected, strict=True):
        assert p <= found <= min(1, len(p_values) * p)
    for (p, found), (q, other) in itertools.combinations(zip(p_values, corrected, strict=True), 2):
        assert p > q or found <= other
        assert p < q or found >= other


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
