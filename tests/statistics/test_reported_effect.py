"""The paper's printed intervals and p-values, from its printed effect sizes alone."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from orthograd.statistics import cohens_d, from_effect_size, t_test

pytestmark = pytest.mark.filterwarnings("error")


class Printed(NamedTuple):
    """A row as the paper prints it; as text, for the number of digits."""

    network: str
    seeds: int
    metric: str
    d: str
    low: str
    high: str
    p: str


# Hedges, "OrthoGrad Improves Neural Calibration": table 1 (ResNet-18) and the table of WideResNet-28-10.
ROWS = [
    Printed("resnet", 20, "top1_accuracy", "-0.05", "-0.67", "0.57", "0.86"),
    Printed("resnet", 20, "top5_accuracy", "-0.35", "-0.97", "0.28", "0.28"),
    Printed("resnet", 20, "loss", "0.64", "0.005", "1.28", "0.05"),
    Printed("resnet", 20, "ece", "0.48", "-0.15", "1.11", "0.14"),
    Printed("resnet", 20, "brier", "0.28", "-0.34", "0.91", "0.37"),
    Printed("resnet", 20, "entropy", "-1.11", "-1.77", "-0.44", "0.001"),
    Printed("resnet", 20, "max_softmax", "1.06", "0.40", "1.72", "0.002"),
    Printed("resnet", 20, "max_logit", "1.52", "0.82", "2.22", "2.5e-5"),
    Printed("resnet", 20, "logit_variance", "2.00", "1.25", "2.77", "2e-7"),
    Printed("wideresnet", 5, "top1_accuracy", "-0.35", "-1.60", "0.90", "0.59"),
    Printed("wideresnet", 5, "top5_accuracy", "0.50", "-0.76", "1.76", "0.44"),
    Printed("wideresnet", 5, "loss", "2.56", "0.89", "4.24", "0.004"),
    Printed("wideresnet", 5, "ece", "2.40", "0.77", "4.02", "0.015"),
    Printed("wideresnet", 5, "brier", "0.86", "-0.43", "2.15", "0.21"),
    Printed("wideresnet", 5, "entropy", "-4.18", "-6.40", "-1.97", "2e-4"),
    Printed("wideresnet", 5, "max_softmax", "2.91", "1.13", "4.69", "0.002"),
    Printed("wideresnet", 5, "max_logit", "11.20", "6.14", "16.27", "3e-6"),
    Printed("wideresnet", 5, "logit_variance", "15.45", "8.57", "22.34", "6e-6"),
]
ABOVE_STUDENT = {("wideresnet", "ece"), ("wideresnet", "max_logit"), ("wideresnet", "logit_variance")}
BELOW_STUDENT = {("wideresnet", "top5_accuracy")}


def rounded_to(text: str) -> tuple[float, float]:
    """The range of the numbers that print so: "0.28" stands for 0.275 to 0.285."""
    value = Decimal(text)
    half = Decimal(5).scaleb(int(value.as_tuple().exponent) - 1)
    return float(value - half), float(value + half)


def computed(row: Printed, what: str) -> tuple[float, float]:
    """The range of a result over the effect sizes that print as the row's; all of them are monotone in d."""
    results = [from_effect_size(d, row.seeds) for d in rounded_to(row.d)]
    values = [
        {"low": x.normal.low, "high": x.normal.high, "p": x.p, "largest_welch_p": x.largest_welch_p or 0}[what]
        for x in results
    ]
    return min(values), max(values)


def gap(row: Printed, what: str) -> float:
    """How far the printed number lies above (+) or below (−) what rounding allows; 0 if it is reproduced."""
    (low, high), (smallest, largest) = computed(row, what), rounded_to(getattr(row, what))
    return max(smallest - high, 0.0) or min(largest - low, 0.0)


def test_the_printed_intervals_are_the_normal_approximation_but_for_one_last_digit() -> None:
    """17 of 18 rows; of ResNet's logit variance the upper end prints 2.77, where 2.7647 is the most for d = 2.00."""
    off = {(row.network, row.metric, end): gap(row, end) for row in ROWS for end in ("low", "high") if gap(row, end)}
    assert off == {("resnet", "logit_variance", "high"): pytest.approx(0.0003, abs=0.0001)}


def test_fourteen_of_eighteen_printed_p_are_students() -> None:
    off = {(row.network, row.metric): gap(row, "p") for row in ROWS}
    assert {row for row, miss in off.items() if miss > 0} == ABOVE_STUDENT
    assert {row for row, miss in off.items() if miss < 0} == BELOW_STUDENT


@pytest.mark.parametrize(
    "row", [row for row in ROWS if (row.network, row.metric) in ABOVE_STUDENT], ids=lambda r: r.metric
)
def test_three_p_of_wideresnet_lie_between_students_and_the_largest_that_welch_can_give(row: Printed) -> None:
    """With 8 degrees of freedom p is far smaller than printed, with 4 larger: arms of unequal variance."""
    smallest, largest = rounded_to(row.p)
    assert computed(row, "p")[1] < smallest
    assert largest < computed(row, "largest_welch_p")[0]


def test_top5_p_of_wideresnet_is_just_below_every_t_test() -> None:
    """0.44 is printed where Student's, the smallest of them, is 0.448 at the least: cut off, not rounded."""
    (row,) = (row for row in ROWS if (row.network, row.metric) in BELOW_STUDENT)
    smallest = computed(row, "p")[0]
    assert smallest == pytest.approx(0.448, abs=0.0005)
    assert math.floor(100 * smallest) / 100 == float(row.p)


def test_from_effect_size_by_hand() -> None:
    found = from_effect_size(1.0, 2, 2)  # t = 1 with 2 degrees of freedom: p = 1 − 1/√3
    assert (found.t, found.degrees, found.p) == (pytest.approx(1), 2, pytest.approx(1 - 1 / math.sqrt(3)))
    assert found.largest_welch_p == pytest.approx(0.5)


def test_samples_and_their_effect_size_say_the_same() -> None:
    one, two = np.random.default_rng(0).normal(size=8), np.random.default_rng(1).normal(size=5)
    effect, test = cohens_d(one, two), t_test(one, two, method="student")
    found = from_effect_size(effect.value, 8, 5)
    assert (found.t, found.p) == pytest.approx((test.statistic, test.p))
    assert (found.exact, found.normal) == (
        pytest.approx(tuple(effect.exact)),
        pytest.approx(tuple(effect.normal or ())),
    )
    assert found.largest_welch_p is None


def test_p_is_that_of_scipy_from_its_own_summary() -> None:
    oracle = stats.ttest_ind_from_stats(2.4, 1, 5, 0, 1, 5)
    assert from_effect_size(2.4, 5).p == pytest.approx(oracle.pvalue)


@pytest.mark.parametrize("seed", range(5))
def test_welch_never_exceeds_its_bound(seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, two = generator.normal(1, 1, 5), generator.normal(0, 10.0 ** generator.uniform(-3, 0), 5)
    found = from_effect_size(cohens_d(one, two).value, 5)
    assert found.largest_welch_p is not None
    assert found.p <= t_test(one, two, method="welch").p <= found.largest_welch_p


def test_bad_effects_are_named() -> None:
    with pytest.raises(ValueError, match="at least 2 seeds in both arms, got 5 and 1"):
        from_effect_size(1.0, 5, 1)
    with pytest.raises(ValueError, match="effect size, got nan"):
        from_effect_size(math.nan, 5)
