"""Whether a number of the paper came out again: the rule, and nothing that depends on what the number is of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import stats

from ..statistics import Interval, cohens_d, from_effect_size, t_test
from .claims import Printed, Row

Verdict = Literal[
    "reproduced",
    "same direction, different size",
    "no difference in either, different size",
    "not reproduced",
    "cannot mean what it says",
    "still missing",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LEVEL = 0.05


@dataclass(frozen=True)
class Judged:
    """A verdict, and the range in which the paper's number should lie if both of us measure the same thing."""

    verdict: Verdict
    expected: Interval | None = None


def judged_mean(
    printed: Printed, row: Row, seeds: int, baseline: Sequence[float], candidate: Sequence[float]
) -> Judged:
    """One of the two means of a row. Inside the expected range, and the finding agrees or none is claimed: reproduced.

    Outside, but with the same finding about the difference (its sign, or none in either), it is of another size; else
    it is not reproduced.
    """
    values = baseline if printed is row.baseline else candidate
    if min(len(baseline), len(candidate)) < 2:
        return Judged("still missing")
    expected = expected_mean(values, seeds, rounding=printed.rounding)
    is_same = is_same_finding(row, baseline, candidate)
    if printed.value in expected:
        return Judged("reproduced" if is_same or not claims_difference(row) else "not reproduced", expected)
    return Judged(_of_another_size(row, baseline, candidate) if is_same else "not reproduced", expected)


def _of_another_size(row: Row, baseline: Sequence[float], candidate: Sequence[float]) -> Verdict:
    is_same = _directions_agree(row, baseline, candidate)
    return "same direction, different size" if is_same else "no difference in either, different size"


def expected_mean(values: Sequence[float], seeds: int, *, rounding: float = 0.0) -> Interval:
    """x̄ ± (t_{0.975, n−1} s √(1/n + 1/m) + rounding): where a mean of m more seeds falls in 95 of 100 cases.

    >>> low, high = expected_mean([1.0, 3.0], 2)  # t_{0.975, 1} = 12.706, s = √2
    >>> round(low, 2), round(high, 2)
    (-15.97, 19.97)
    """
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats.t.isf(LEVEL / 2, n - 1)) * sd * math.sqrt(1 / n + 1 / seeds) + rounding
    # The last digit of a decimal fraction is not exact in binary.
    return Interval(mean - half - 1e-9 * abs(mean), mean + half + 1e-9 * abs(mean))


def claims_difference(row: Row) -> bool:
    """Whether the paper calls the difference significant; one that comes without a p it does not."""
    return row.p is not None and row.p.value <= LEVEL


def is_same_finding(row: Row, baseline: Sequence[float], candidate: Sequence[float]) -> bool:
    """Whether our difference has the sign of the paper's, or neither of us finds one by the paper's own test."""
    if _directions_agree(row, baseline, candidate):
        return True
    return not claims_difference(row) and t_test(baseline, candidate, method="student").p > LEVEL


def _directions_agree(row: Row, baseline: Sequence[float], candidate: Sequence[float]) -> bool:
    theirs, ours = row.baseline.value - row.candidate.value, float(np.mean(baseline)) - float(np.mean(candidate))
    return theirs * ours > 0


def judged_effect(row: Row, seeds: int, baseline: Sequence[float], candidate: Sequence[float]) -> Judged | None:
    """Two effect sizes agree if they differ by no more than their 95 % intervals, added in squares, allow.

    None where the paper says nothing of the effect.
    """
    theirs = printed_effect(row, seeds)
    if theirs is None:
        return None
    if min(len(baseline), len(candidate)) < 2:
        return Judged("still missing")
    ours = cohens_d(baseline, candidate)
    assert ours.normal is not None
    own, other = ours.normal, from_effect_size(theirs, seeds).normal
    rounding = row.d.rounding if row.d else 0.0
    half = math.hypot((own.high - own.low) / 2, (other.high - other.low) / 2) + rounding
    expected = Interval(ours.value - half, ours.value + half)
    if not is_same_finding(row, baseline, candidate):
        return Judged("not reproduced", expected)
    return Judged("reproduced" if theirs in expected else _of_another_size(row, baseline, candidate), expected)


def printed_effect(row: Row, seeds: int) -> float | None:
    """The paper's d: as printed, or the one that its p stands for; None where it prints neither."""
    if row.d is not None:
        return row.d.value
    if row.p is None:
        return None
    t = float(stats.t.isf(row.p.value / 2, 2 * seeds - 2))
    return math.copysign(t * math.sqrt(2 / seeds), row.baseline.value - row.candidate.value)
