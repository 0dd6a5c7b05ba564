"""The difference, its error and its t interval, and the three t-tests on it."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from orthograd.statistics import Interval, difference_interval, estimated_difference, t_test
from orthograd.statistics.difference import Method

pytestmark = pytest.mark.filterwarnings("error")

METHODS = get_args(Method)
VALUES = st.integers(-1000, 1000).map(lambda x: x / 10)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=9).map(lambda pairs: tuple(zip(*pairs, strict=True)))


def draw(seed: int, *sizes: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(i, 1 + 2 * i, size) for i, size in enumerate(sizes)]


def test_paired_by_hand() -> None:
    found = estimated_difference([3.0, 5.0, 4.0], [1.0, 1.0, 1.0])  # differences 2, 4, 3
    assert (found.difference, found.error, found.degrees) == (3.0, pytest.approx(1 / math.sqrt(3)), 2)


def test_student_and_welch_by_hand() -> None:
    baseline, candidate = [1.0, 3.0], [0.0, 2.0, 4.0, 6.0]  # variances 2 and 20/3
    student = estimated_difference(baseline, candidate, method="student")
    assert (student.difference, student.degrees) == (-1.0, 4)
    assert student.error == pytest.approx(math.sqrt((2 + 20) / 4 * (1 / 2 + 1 / 4)))
    welch = estimated_difference(baseline, candidate, method="welch")
    assert welch.error == pytest.approx(math.sqrt(1 + 5 / 3))
    assert welch.degrees == pytest.approx((1 + 5 / 3) ** 2 / (1 / 1 + (5 / 3) ** 2 / 3))


@pytest.mark.parametrize("seed", range(3))
def test_t_tests_are_those_of_scipy(seed: int) -> None:
    one, two = draw(seed, 7, 5)
    for method, equal in (("student", True), ("welch", False)):
        found = t_test(one, two, method=method)
        oracle = stats.ttest_ind_from_stats(one.mean(), one.std(ddof=1), 7, two.mean(), two.std(ddof=1), 5, equal)
        assert (found.statistic, found.p) == pytest.approx(tuple(oracle), rel=1e-12)
    one, two = draw(seed, 7, 7)
    found, oracle = t_test(one, two), stats.ttest_rel(one, two)
    assert (found.statistic, found.p) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_intervals_are_those_of_scipy(alpha: float) -> None:
    one, two = draw(3, 6, 6)
    oracles = {
        "paired": stats.ttest_rel(one, two),
        "welch": stats.ttest_ind(one, two, equal_var=False),
        "student": stats.ttest_ind(one, two),
    }
    for method, oracle in oracles.items():
        expected = oracle.confidence_interval(1 - alpha)
        found = difference_interval(one, two, method=method, alpha=alpha)  # type: ignore[arg-type]
        assert found == pytest.approx((expected.low, expected.high), rel=1e-12)


@given(PAIRS, st.sampled_from(METHODS))
def test_zero_is_in_the_interval_where_p_is_not_below_alpha(pairs: tuple[list[float], ...], method: Method) -> None:
    p = t_test(*pairs, method=method).p
    assume(abs(p - 0.05) > 1e-9)
    assert (0 in difference_interval(*pairs, method=method)) == (p > 0.05)


@given(PAIRS, st.sampled_from(METHODS))
def test_swapping_the_arms_flips_the_sign(pairs: tuple[list[float], ...], method: Method) -> None:
    found, swapped = t_test(*pairs, method=method), t_test(*pairs[::-1], method=method)
    assert swapped.statistic == pytest.approx(-found.statistic)
    assert swapped.p == pytest.approx(found.p)
    low, high = difference_interval(*pairs[::-1], method=method)
    assert difference_interval(*pairs, method=method) == pytest.approx((-high, -low))


@given(PAIRS, st.sampled_from(METHODS))
def test_tests_do_not_depend_on_shift_and_unit(pairs: tuple[list[float], ...], method: Method) -> None:
    moved = [[8 * value + 1024 for value in arm] for arm in pairs]
    found, expected = t_test(*moved, method=method), t_test(*pairs, method=method)
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.p), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_without_variance_p_is_one_or_zero(method: Method) -> None:
    same, apart = t_test([2, 2, 2], [2, 2, 2], method=method), t_test([2, 2, 2], [3, 3, 3], method=method)
    assert (same.statistic, same.p) == (0, 1)
    assert (apart.statistic, apart.p) == (-math.inf, 0)
    assert difference_interval([2, 2, 2], [3, 3, 3], method=method) == (-1, -1)


def test_without_variance_welch_has_students_degrees() -> None:
    assert t_test([2, 2, 2], [3, 3], method="welch").degrees == 3


@pytest.mark.parametrize("method", METHODS)
def test_differences_that_cancel_but_for_rounding_are_none(method: Method) -> None:
    assert 0.1 + 0.2 - 0.3 != 0
    found = t_test([0.1, 0.2, -0.3], [0, 0, 0], method=method)
    assert (found.statistic, found.p) == (0, 1)


def test_welch_uses_the_degrees_of_the_only_arm_that_varies() -> None:
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
