"""The mean difference baseline − candidate, its standard error and its t interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from numpy.typing import ArrayLike
from scipy import stats

from .interval import Interval
from .samples import Arms, Moments, arms, checked_alpha, moments_of

Method = Literal["paired", "welch", "student"]


@dataclass(frozen=True)
class Estimate:
    """A difference, its standard error and the degrees of freedom of that error."""

    difference: float
    error: float
    degrees: float


def estimated_difference(baseline: ArrayLike, candidate: ArrayLike, *, method: Method = "paired") -> Estimate:
    """The mean difference with the standard error of one of three t-tests.

    paired:  s_D / √n of the seeds' differences, ν = n − 1.
    welch:   √(s₁²/n₁ + s₂²/n₂), ν by Welch and Satterthwaite.
    student: s_p √(1/n₁ + 1/n₂) with the pooled s_p, ν = n₁ + n₂ − 2.

    >>> estimated_difference([3.0, 5.0], [1.0, 1.0])
    Estimate(difference=3.0, error=1.0, degrees=1)
    """
    if method not in get_args(Method):
        raise ValueError(f"expected method in {get_args(Method)}, got {method!r}")
    both = arms(baseline, candidate, paired=method == "paired")
    return {"paired": _paired, "welch": _welch, "student": _student}[method](both)


def difference_interval(
    baseline: ArrayLike, candidate: ArrayLike, *, method: Method = "paired", alpha: float = 0.05
) -> Interval:
    """D ± t_{1−α/2, ν} · error, see `estimated_difference`.

    >>> low, high = difference_interval([3.0, 5.0], [1.0, 1.0], alpha=0.5)  # t_{0.75, 1} = 1
    >>> round(low, 6), round(high, 6)
    (2.0, 4.0)
    """
    return t_interval(estimated_difference(baseline, candidate, method=method), alpha=alpha)


def t_interval(estimate: Estimate, *, alpha: float = 0.05) -> Interval:
    """D ± t_{1−α/2, ν} · error, and D itself where the error is zero."""
    half = float(stats.t.isf(checked_alpha(alpha) / 2, estimate.degrees)) * estimate.error
    return Interval(estimate.difference - half, estimate.difference + half)


def pooled_sd(baseline: Moments, candidate: Moments) -> float:
    """s_p = √(((n₁ − 1) s₁² + (n₂ − 1) s₂²) / (n₁ + n₂ − 2))."""
    degrees = baseline.n + candidate.n - 2
    return math.hypot(
        baseline.sd * math.sqrt((baseline.n - 1) / degrees), candidate.sd * math.sqrt((candidate.n - 1) / degrees)
    )


def _paired(both: Arms) -> Estimate:
    moments = moments_of(both.differences, scale=both.scale)
    return Estimate(moments.mean, moments.sd / math.sqrt(moments.n), moments.n - 1)


def _student(both: Arms) -> Estimate:
    baseline, candidate = both.moments
    error = pooled_sd(baseline, candidate) * math.sqrt(1 / baseline.n + 1 / candidate.n)
    return Estimate(both.difference, error, baseline.n + candidate.n - 2)


def _welch(both: Arms) -> Estimate:
    """ν = 1 / (r²/(n₁ − 1) + (1 − r)²/(n₂ − 1)), r the baseline's share of the squared error."""
    baseline, candidate = both.moments
    error = math.hypot(baseline.sd / math.sqrt(baseline.n), candidate.sd / math.sqrt(candidate.n))
    if error == 0:
        return _student(both)  # no variance has no shares; t is zero or infinite whatever ν is
    share = (baseline.sd / error) ** 2 / baseline.n
    degrees = 1 / (share**2 / (baseline.n - 1) + (1 - share) ** 2 / (candidate.n - 1))
    return Estimate(both.difference, error, degrees)
