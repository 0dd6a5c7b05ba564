"""The rule that turns a claim of the paper and our runs into a verdict, and what it gives if the method did nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...statistics import Interval
from ...statistics.hypothesis import least_p

Verdict = Literal["reproduced", "compatible", "not reproduced", "contradicted by its own numbers"]
Says = Literal["lower", "higher", "equal"]
Methods = tuple[Sequence[float], Sequence[float]]
"""Baseline and candidate, one value per seed."""
Values = NDArray[np.float64]
LEVEL = 0.05
DRAWS = 400
"""Data sets without an effect that the rule is applied to."""

RULE = (
    "**Reproduced**: the paper claims a difference, and our 95% interval of the paired difference lies on the same "
    "side of zero. The paper claims one where its p is at most 0.05, or where it has a single seed.",
    "**Compatible**: we do not find the effect, but the paper's number lies in the 95% range that our seeds predict "
    "for it. A mean can be no more than compatible.",
    "**Not reproduced**: the paper's number lies outside that range, or our interval lies on the other side of zero, "
    "whether or not the paper claims the difference.",
    "**Contradicted by its own numbers**: the claim does not follow from the paper's own table. One example is a "
    "claimed difference of two means that are printed as equal.",
    "A claim of **no difference** is reproduced if both methods are equivalent within a margin (accuracy: one point, "
    "ECE: 0.01), and not reproduced if our methods differ significantly.",
)
"""What `verdict_on` does, in words."""


@dataclass(frozen=True)
class Claim:
    """What the paper says of one number: a mean, or a difference candidate − baseline.

    ``says`` is None for a number without a claim; ``size`` is None where the paper prints no number.
    """

    says: Says | None
    size: float | None = None
    rounding: float = 0.0
    seeds: int = 1
    margin: float | None = None

    @property
    def contradicts_itself(self) -> bool:
        """True if the paper's own number is zero, or lies on the other side of it, beyond its rounding."""
        if self.size is None or self.says not in ("lower", "higher"):
            return False
        return self.size == 0 or (self.size if self.says == "lower" else -self.size) > self.rounding

    @property
    def sign(self) -> int:
        """-1 if the paper's number is below zero, 1 if above, 0 if its rounding hides that; a claim decides alone."""
        if self.says is not None:
            return {"lower": -1, "higher": 1, "equal": 0}[self.says]
        return 0 if self.size is None or abs(self.size) <= self.rounding else 1 if self.size > 0 else -1


@dataclass(frozen=True)
class Estimate:
    """Our mean, or mean paired difference: its value, its standard error, n seeds, and the SD of a single seed."""

    value: float
    error: float
    n: int
    spread: float

    @property
    def interval(self) -> Interval:
        """95% interval of the value."""
        half = t_quantile(self.n - 1, LEVEL / 2) * self.error
        return Interval(self.value - half, self.value + half)

    @property
    def is_significant(self) -> bool:
        """True if zero lies outside the interval; without spread, if a rank test of n pairs can reach 0.05."""
        if self.error == 0:
            return self.value != 0 and least_p(self.n, self.n, paired=True) < LEVEL
        return 0.0 not in self.interval

    def is_within(self, margin: float | None) -> bool:
        """True if two one-sided tests show that the value lies within ±margin."""
        if margin is None or (self.error == 0 and least_p(self.n, self.n, paired=True) / 2 >= LEVEL):
            return False
        return abs(self.value) + t_quantile(self.n - 1, LEVEL) * self.error < margin

    def expected(self, seeds: int, rounding: float = 0.0) -> Interval:
        """The 95% range for the mean of that many other seeds, widened by rounding.

        value ± (t √(error² + spread² / seeds) + rounding)

        >>> low, high = mean_estimates(np.array([[1.0, 3.0]]))[0].expected(2)  # t_{0.975, 1} = 12.706, s = √2
        >>> round(low, 2), round(high, 2)
        (-15.97, 19.97)
        """
        half = t_quantile(self.n - 1, LEVEL / 2) * math.hypot(self.error, self.spread / math.sqrt(seeds)) + rounding
        half += 1e-9 * abs(self.value)  # the last digit of a decimal fraction is not exact in binary
        return Interval(self.value - half, self.value + half)


def verdict_on(claim: Claim, ours: Estimate) -> Verdict:
    """The verdict on one claim; `RULE` says it in words.

    >>> lower = Claim("lower", size=-1.0, seeds=20)
    >>> verdict_on(lower, Estimate(-0.9, error=0.1, n=20, spread=0.6))
    'reproduced'
    >>> verdict_on(lower, Estimate(-0.9, error=0.8, n=20, spread=5.0))  # an interval that includes zero
    'compatible'
    >>> verdict_on(lower, Estimate(0.1, error=0.1, n=20, spread=0.6))  # no difference, and −1 is excluded
    'not reproduced'
    >>> verdict_on(Claim(None, size=0.5, seeds=5), Estimate(-2.8, error=0.9, n=10, spread=3.7))  # the opposite
    'not reproduced'
    """
    if claim.contradicts_itself:
        return "contradicted by its own numbers"
    if claim.says == "equal":
        if ours.is_within(claim.margin):
            return "reproduced"
        return "not reproduced" if ours.is_significant else "compatible"
    if ours.is_significant and claim.sign * ours.value < 0:
        return "not reproduced"
    if ours.is_significant and claim.says is not None:
        return "reproduced"
    if claim.size is not None and claim.size not in ours.expected(claim.seeds, claim.rounding):
        return "not reproduced"
    return "compatible"


def mean_estimates(values: Values) -> list[Estimate]:
    """The mean of each row; a column is a seed."""
    n = values.shape[1]
    means, sds = values.mean(axis=1), values.std(axis=1, ddof=1)
    return [Estimate(float(m), float(s) / math.sqrt(n), n, float(s)) for m, s in zip(means, sds, strict=True)]


def difference_estimates(baseline: Values, candidate: Values) -> list[Estimate]:
    """The paired difference candidate − baseline of each row; a column is a seed.

    The paper's runs need not be paired, so the spread of a single difference is √(s₁² + s₂²).
    """
    n, scale = baseline.shape[1], 1e-12 * np.abs(baseline).max(axis=1)  # less is rounding
    means, sds = (candidate - baseline).mean(axis=1), (candidate - baseline).std(axis=1, ddof=1)
    means, sds = (np.where(np.abs(each) <= scale, 0.0, each) for each in (means, sds))
    spreads = np.hypot(baseline.std(axis=1, ddof=1), candidate.std(axis=1, ddof=1))
    return [
        Estimate(float(m), float(s) / math.sqrt(n), n, float(spread))
        for m, s, spread in zip(means, sds, spreads, strict=True)
    ]


def without_effect(methods: Methods) -> tuple[Values, Values]:
    """Data sets in which the candidate does nothing, a row each: the same every time.

    The candidate's mean is set to the baseline's. Then the methods are swapped at random within each pair. Pairs of
    one seed are swapped together in all metrics of a comparison.

    >>> baseline, candidate = without_effect(([1.0, 2.0], [4.0, 7.0]))
    >>> baseline.shape, sorted({float(x) for x in (baseline + candidate)[:, 0]})  # 1 + (4 − 4)
    ((400, 2), [1.0])
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in methods)
    second = second - second.mean() + first.mean()
    swapped = np.random.default_rng(0).random((DRAWS, len(first))) < 0.5
    return np.where(swapped, second, first), np.where(swapped, first, second)


@lru_cache
def t_quantile(degrees: int, tail: float) -> float:
    """The value that t exceeds with probability ``tail``."""
    return float(stats.t.isf(tail, degrees))
