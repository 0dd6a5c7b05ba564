"""What may come in, and the moments of it."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthograd.statistics.samples import checked_margin, checked_power, moments_of, two_samples

pytestmark = pytest.mark.filterwarnings("error")


def test_moments_by_hand() -> None:
    moments = two_samples([1.0, 2.0, 6.0], [2.0, 4.0]).moments
    assert [(x.n, x.mean, x.sd) for x in moments] == [
        (3, 3.0, pytest.approx(math.sqrt(7))),
        (2, 3.0, pytest.approx(math.sqrt(2))),
    ]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_moments_are_those_of_exact_arithmetic(values: list[float]) -> None:
    moments = moments_of(np.array(values))
    assert moments.mean == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert moments.sd == pytest.approx(statistics.stdev(values), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e200, 1e299])
def test_moments_neither_underflow_nor_overflow(scale: float) -> None:
    moments = moments_of(np.array([1.0, 2.0, 6.0]) * scale)
    assert moments.mean / scale == pytest.approx(3)
    assert moments.sd / scale == pytest.approx(math.sqrt(7))


def test_rounding_is_neither_spread_nor_difference() -> None:
    shifted = two_samples([0.3, 0.4, 0.7], [0.2, 0.3, 0.6])
    assert len(set(shifted.baseline - shifted.candidate)) > 1  # the trap: 0.3 − 0.2 is not 0.4 − 0.3
    assert moments_of(shifted.differences, scale=shifted.scale).sd == 0
    assert two_samples([0.1 + 0.2, 1.0], [0.3, 1.0]).differences.tolist() == [0, 0]
    assert moments_of(np.full(3, 0.1)).sd == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "baseline of at least 2 seeds, got 1"),
        ([], "at least 2 seeds, got 0"),
        ([[1.0, 2.0]], r"baseline \(seeds,\), got shape \(1, 2\)"),
        (3.0, r"got shape \(\)"),
        ([1.0, math.nan], "finite, got nan at position 1"),
        ([-math.inf, 1.0], "finite, got -inf at position 0"),
        ([1e308, 1.0], r"finite, got 1e\+308 at position 0"),
        (["a", "b"], "real numbers, got dtype <U1"),
        (np.ma.array([1.0, 2.0, 9.0], mask=[0, 0, 1]), "baseline without a mask, got 1 masked of 3 values"),
        ([1.0, None], "real numbers, got dtype object"),
        ([1j, 2j], "real numbers, got dtype complex128"),
    ],
)
def test_bad_samples_are_named(values: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        two_samples(values, [1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message.replace("baseline", "candidate")):
        two_samples([1.0, 2.0], values)  # type: ignore[arg-type]


def test_pairs_need_as_many_seeds_in_both_samples() -> None:
    with pytest.raises(ValueError, match="got 3 baseline, 2 candidate"):
        two_samples([1, 2, 3], [1, 2], paired=True)
    assert len(two_samples([1, 2, 3], [1, 2]).baseline) == 3


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_is_positive(margin: float) -> None:
    with pytest.raises(ValueError, match=f"margin > 0, got {margin!r}"):
        checked_margin(margin)


@pytest.mark.parametrize("power", [0.0, 1.0, math.nan])
def test_a_power_is_between_0_and_1(power: float) -> None:
    with pytest.raises(ValueError, match=f"power between 0 and 1, got {power!r}"):
        checked_power(power)
