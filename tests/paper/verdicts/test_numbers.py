"""Our differences, and the rule behind the verdicts, on cases made by hand: each verdict can be reached."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from orthograd.paper.verdicts.claims import Printed, Row
from orthograd.paper.verdicts.numbers import (
    assess_effect,
    assess_mean,
    differences,
    expected_mean,
    is_same_finding,
)
from orthograd.statistics import compare

LOW, HIGH = [0.9, 1.0, 1.1, 1.0], [1.9, 2.0, 2.1, 2.0]  # means 1 and 2, SD 0.0816


def row(baseline, candidate, *, d=None, p=None):
    return Row(
        "clean.loss",
        *(None if x is None else Printed(Decimal(x)) for x in (baseline, candidate, d)),
        None,
        None if p is None else Printed(Decimal(p)),
    )


def ours(baseline, candidate):
    """None with fewer than two seeds."""
    return compare(baseline, candidate) if len(baseline) > 1 else None


def verdicts(claim, baseline, candidate, seeds=4):
    own = ours(baseline, candidate)
    return [assess_mean(x, claim, seeds, own).verdict for x in (claim.baseline, claim.candidate)]


def test_what_lies_where_it_should_is_reproduced():
    assert verdicts(row("2.05", "0.97", p="0.001"), HIGH, LOW) == ["reproduced", "reproduced"]


def test_the_right_sign_at_another_height_is_of_another_size():
    assert verdicts(row("5.00", "0.97", p="0.001"), HIGH, LOW) == ["same direction, different size", "reproduced"]


def test_the_wrong_sign_of_a_significant_difference_is_not_reproduced_even_at_the_right_height():
    close = [1.0, 1.2, 0.8, 1.0], [1.01, 1.21, 0.81, 1.01]
    assert verdicts(row("1.02", "0.99", p="0.001"), *close) == ["not reproduced"] * 2
    assert verdicts(row("1.02", "0.99", p="0.5"), *close) == ["reproduced"] * 2
    assert verdicts(row("1.02", "0.99"), *close) == ["reproduced"] * 2  # without p nothing is claimed


def test_another_height_and_the_wrong_sign_is_not_reproduced():
    assert verdicts(row("5.00", "7.00", p="0.001"), HIGH, LOW) == ["not reproduced"] * 2
    assert verdicts(row("5.00", "7.00", p="0.9"), HIGH, LOW) == ["not reproduced"] * 2  # ours is significant


def test_where_neither_finds_a_difference_another_height_is_of_another_size():
    same = [1.0, 1.2, 0.8, 1.0], [1.01, 1.21, 0.81, 1.01]
    assert verdicts(row("5.02", "5.00", p="0.5"), *same) == ["no difference in either, different size"] * 2
    assert verdicts(row("5.00", "5.02", p="0.5"), *same) == ["same direction, different size"] * 2


def test_fewer_than_two_seeds_are_missing():
    assert verdicts(row("5.02", "5.00"), [], []) == ["still missing"] * 2
    assert assess_effect(row("5.02", "5.00", d="1.0"), 4, ours([1.0], [2.0])).verdict == "still missing"


def test_the_expected_range_holds_19_of_20_means():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = expected_mean(generator.normal(size=5), 3)
        hits += low <= generator.normal(size=3).mean() <= high
    assert abs(hits / 2000 - 0.95) < 0.015


def test_the_expected_range_by_hand_and_widened_by_rounding():
    low, high = expected_mean([1.0, 2.0, 3.0], 6, rounding=0.5)
    half = stats.t.ppf(0.975, 2) * 1.0 * (1 / 3 + 1 / 6) ** 0.5 + 0.5
    assert (low, high) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_numbers_without_spread_compare_as_they_are_printed():
    claim = row("0.30", "0.20")
    assert verdicts(claim, [0.3] * 3, [0.2] * 3) == ["reproduced", "reproduced"]


def test_effects_agree_within_both_their_errors():
    noise = np.random.default_rng(1).normal(size=20)
    near, far = noise + 1.0, noise + 9.0
    assert assess_effect(row("2.00", "1.00", d="1.20", p="0.001"), 20, ours(near, noise)).verdict == "reproduced"
    assert (
        assess_effect(row("2.00", "1.00", d="1.20", p="0.001"), 20, ours(far, noise)).verdict
        == "same direction, different size"
    )
    assert assess_effect(row("2.00", "1.00", d="1.20", p="0.001"), 20, ours(noise, near)).verdict == "not reproduced"
    assert assess_effect(row("2.00", "1.00"), 20, ours(near, noise)) is None


def test_the_same_finding():
    assert is_same_finding(row("2.0", "1.0", p="0.01"), ours(HIGH, LOW))
    assert not is_same_finding(row("2.0", "1.0", p="0.01"), ours(LOW, HIGH))
    assert is_same_finding(row("2.0", "1.0", p="0.6"), ours([1.0, 1.5, 0.5], [1.1, 1.6, 0.6]))
    assert is_same_finding(row("1.0", "1.0"), ours([1.0, 1.5, 0.5], [1.1, 1.6, 0.6]))


WITH_SPREAD = ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])
SHIFTED = ([0.3, 0.4, 0.7], [0.2, 0.3, 0.6])
SAME = ([0.3, 0.4], [0.3, 0.4])
MANY = ([0.3] * 7, [0.2] * 7)


@pytest.mark.parametrize("margin", [None, 0.5])
@pytest.mark.parametrize("methods", [WITH_SPREAD, SHIFTED, SAME, MANY])
def test_a_row_alone_is_evaluated_as_by_compare(methods, margin):
    row = differences({"clean.ece": methods}, margins={} if margin is None else {"clean.ece": margin})["clean.ece"]
    expected = compare(*methods, better="lower", margin=margin)
    assert row.p == pytest.approx(expected.p)
    assert row.verdict == expected.verdict


def test_two_seeds_that_agree_prove_nothing():
    assert differences({"clean.ece": ([0.3, 0.4], [0.2, 0.3])}, margins={})["clean.ece"].verdict == "inconclusive"
    assert differences({"clean.ece": SAME}, margins={"clean.ece": 0.1})["clean.ece"].verdict == "inconclusive"
