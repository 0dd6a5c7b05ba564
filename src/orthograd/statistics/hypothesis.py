"""t-tests, Wilcoxon's test, equivalence tests, and Holm's correction for many tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .difference import Estimate, Interval, Method, estimated_difference, t_interval
from .samples import checked_alpha, checked_margin, two_samples


@dataclass(frozen=True)
class SignificanceTest:
    """A test statistic, its degrees of freedom (where it has any) and its two-sided p."""

    statistic: float
    degrees: float | None
    p: float


def t_test(baseline: ArrayLike, candidate: ArrayLike, *, method: Method = "paired") -> SignificanceTest:
    """One of three t-tests of candidate − baseline: ``t = difference / error, p = 2 P(T_ν > |t|)``.

    `estimated_difference` has the difference, the error and ν of each method.

    Without variance p is 1 if the difference is zero, and 0 otherwise.

    >>> t_test([3.0, 5.0], [1.0, 1.0]).statistic
    -3.0
    """
    estimate = estimated_difference(baseline, candidate, method=method)
    t = t_statistic(estimate)
    return SignificanceTest(t, estimate.degrees, student_p(t, estimate.degrees))


def student_p(t: float, degrees: float) -> float:
    """P(|T_ν| > |t|).

    >>> round(student_p(1.0, 1), 6)  # Cauchy
    0.5
    """
    return min(1.0, 2 * float(stats.t.sf(abs(t), degrees)))


def t_statistic(estimate: Estimate, *, against: float = 0.0) -> float:
    """(difference − against) / error; infinite where the error alone is zero."""
    excess = estimate.difference - against
    if excess == 0:
        return 0.0
    return excess / estimate.error if estimate.error else math.copysign(math.inf, excess)


def wilcoxon_test(baseline: ArrayLike, candidate: ArrayLike) -> SignificanceTest:
    """Wilcoxon's signed-rank test: ``min(Σ ranks of |D| with D > 0, Σ ranks with D < 0)`` without zero differences.

    The p-value is exact for the sample sizes that scipy enumerates. 5 pairs cannot give less than p = 2/2⁵ = 0.0625.

    >>> wilcoxon_test([1.0, 2.0, 3.0, 4.0, 5.0], [0.9, 1.8, 2.7, 3.6, 4.5]).p
    0.0625
    """
    both = two_samples(baseline, candidate, paired=True)
    if not both.differences.any():
        return SignificanceTest(0.0, None, 1.0)
    # Rounding errors would break ties between equal differences.
    result = stats.wilcoxon(np.round(both.differences / both.scale, 13))
    return SignificanceTest(float(result.statistic), None, float(result.pvalue))


@dataclass(frozen=True)
class Equivalence:
    """An equivalence test: the margin, p of both one-sided tests, the larger p, and the 1 − 2α interval."""

    margin: float
    p_below: float
    p_above: float
    p: float
    interval: Interval


def tost(
    baseline: ArrayLike, candidate: ArrayLike, *, margin: float, paired: bool = True, alpha: float = 0.05
) -> Equivalence:
    """Two one-sided t-tests: p = max(P(T_ν > (D + m)/error), P(T_ν < (D − m)/error)), paired or Welch's.

    p < α shows that the difference lies between −m and m, as does a 1 − 2α interval inside that range. State the
    margin before seeing the data. A test that detects no difference does not show equivalence.

    >>> result = tost([1.0, 2.0, 3.0], [1.1, 2.0, 2.9], margin=0.5)
    >>> result.p < 0.05, result.interval.is_inside(0.5)
    (True, True)

    Reference: Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987.
    """
    margin = checked_margin(margin)
    if checked_alpha(alpha) >= 0.5:
        raise ValueError(f"expected alpha below 0.5, as the interval is of 1 − 2·alpha, got {alpha!r}")
    estimate = estimated_difference(baseline, candidate, method="paired" if paired else "welch")
    below = float(stats.t.sf(t_statistic(estimate, against=-margin), estimate.degrees))
    above = float(stats.t.cdf(t_statistic(estimate, against=margin), estimate.degrees))
    return Equivalence(margin, below, above, max(below, above), t_interval(estimate, alpha=2 * alpha))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values in the given order: p̃₍ᵢ₎ = max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎).

    Rejecting where p̃ < α keeps the probability of any false rejection among all m below α.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Reference: Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    for position, p in enumerate(p_values):
        if not 0 <= p <= 1:
            raise ValueError(f"expected p-values between 0 and 1, got {p!r} at position {position}")
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        corrected[position] = largest
    return corrected


def least_p(baseline: int, candidate: int, *, paired: bool) -> float:
    """The smallest p of a two-sided rank test, where all pairs, or all seeds of one method, agree.

    It is used where differences have no spread: a t-test would give p = 0 for two seeds.

    >>> least_p(3, 3, paired=True), least_p(3, 3, paired=False)  # 2 / 2³ and 2 / (6 over 3)
    (0.25, 0.1)
    """
    return min(1.0, 2 / (2**baseline if paired else math.comb(baseline + candidate, baseline)))
