"""The mean difference candidate − baseline, its standard error, and its t and bootstrap intervals."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .samples import FloatArray, Moments, TwoSamples, checked_alpha, checked_resamples, moments_of, two_samples

Method = Literal["paired", "welch", "student"]


class Interval(NamedTuple):
    """The interval from low to high, both included.

    >>> 0.5 in Interval(0.0, 1.0)
    True
    """

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def is_inside(self, margin: float) -> bool:
        """True if the interval lies strictly between −margin and margin."""
        return -margin < self.low and self.high < margin

    def over(self, divisor: float) -> Interval:
        """Both ends divided by a positive number."""
        return Interval(self.low / divisor, self.high / divisor)


@dataclass(frozen=True)
class Estimate:
    """A difference candidate − baseline, its standard error and the degrees of freedom of that error."""

    difference: float
    error: float
    degrees: float


def estimated_difference(baseline: ArrayLike, candidate: ArrayLike, *, method: Method = "paired") -> Estimate:
    """The mean difference candidate − baseline with the standard error of one of three t-tests.

    paired:  s_D / √n of the seeds' differences, ν = n − 1.
    welch:   √(s₁²/n₁ + s₂²/n₂), ν by Welch and Satterthwaite.
    student: s_p √(1/n₁ + 1/n₂) with the pooled s_p, ν = n₁ + n₂ − 2.

    >>> estimated_difference([1.0, 1.0], [3.0, 5.0])
    Estimate(difference=3.0, error=1.0, degrees=1)
    """
    if method not in get_args(Method):
        raise ValueError(f"expected method in {get_args(Method)}, got {method!r}")
    both = two_samples(baseline, candidate, paired=method == "paired")
    return {"paired": _paired, "welch": _welch, "student": _student}[method](both)


def difference_interval(
    baseline: ArrayLike, candidate: ArrayLike, *, method: Method = "paired", alpha: float = 0.05
) -> Interval:
    """D ± t_{1−α/2, ν} · error with D = candidate − baseline, see `estimated_difference`.

    >>> low, high = difference_interval([1.0, 1.0], [3.0, 5.0], alpha=0.5)  # t_{0.75, 1} = 1
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


def _paired(both: TwoSamples) -> Estimate:
    moments = moments_of(both.differences, scale=both.scale)
    return Estimate(moments.mean, moments.sd / math.sqrt(moments.n), moments.n - 1)


def _student(both: TwoSamples) -> Estimate:
    baseline, candidate = both.moments
    error = pooled_sd(baseline, candidate) * math.sqrt(1 / baseline.n + 1 / candidate.n)
    return Estimate(both.difference, error, baseline.n + candidate.n - 2)


def _welch(both: TwoSamples) -> Estimate:
    """ν = 1 / (r²/(n₁ − 1) + (1 − r)²/(n₂ − 1)), r the baseline's share of the squared error."""
    baseline, candidate = both.moments
    error = math.hypot(baseline.sd / math.sqrt(baseline.n), candidate.sd / math.sqrt(candidate.n))
    if error == 0:
        return _student(both)  # no variance has no shares; t is zero or infinite whatever ν is
    share = (baseline.sd / error) ** 2 / baseline.n
    degrees = 1 / (share**2 / (baseline.n - 1) + (1 - share) ** 2 / (candidate.n - 1))
    return Estimate(both.difference, error, degrees)


def bootstrap_interval(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    paired: bool = True,
    alpha: float = 0.05,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """The bias-corrected and accelerated bootstrap interval of the mean difference candidate − baseline.

    Paired values are resampled together. Without spread the interval is the difference itself. With fewer than about
    ten seeds it is too narrow; use the t interval then.

    >>> bootstrap_interval([1.0, 3.0], [3.0, 5.0])
    Interval(low=2.0, high=2.0)

    Reference: Efron, "Better bootstrap confidence intervals", 1987.
    """
    both = two_samples(baseline, candidate, paired=paired)
    checked_alpha(alpha)
    checked_resamples(resamples)
    center, spread, data = _standardized_pairs(both) if paired else _standardized_samples(both)
    if spread == 0:
        return Interval(center, center)
    ends = _ends(data, alpha=alpha, resamples=resamples, seed=seed, method="BCa")
    if not np.isfinite(ends).all():
        ends = _ends(data, alpha=alpha, resamples=resamples, seed=seed, method="percentile")
    return Interval(center + spread * ends.low, center + spread * ends.high)


# BCa is invariant to shift and scale, and its cubes neither underflow nor cancel for values around 1.
def _standardized_pairs(both: TwoSamples) -> tuple[float, float, tuple[FloatArray, ...]]:
    moments = moments_of(both.differences, scale=both.scale)
    return moments.mean, moments.sd, (_on_grid((both.differences - moments.mean) / (moments.sd or 1.0)),)


def _standardized_samples(both: TwoSamples) -> tuple[float, float, tuple[FloatArray, ...]]:
    baseline, candidate = both.moments
    spread = pooled_sd(baseline, candidate)
    centered = both.baseline - baseline.mean, both.candidate - candidate.mean
    return both.difference, spread, tuple(_on_grid(sample / (spread or 1.0)) for sample in centered)


def _on_grid(values: FloatArray) -> FloatArray:
    # Sums of multiples of 2⁻⁴⁰ are exact. A resample of the same values in another order then ties with the sample, so
    # the bias correction, which counts resamples below it, does not depend on the last bit.
    return np.round(values * 2.0**40) / 2.0**40


def _ends(
    data: tuple[FloatArray, ...], *, alpha: float, resamples: int, seed: int, method: Literal["BCa", "percentile"]
) -> Interval:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # degenerate resamples give NaN, which the caller checks
        result = stats.bootstrap(
            data,
            np.mean if len(data) == 1 else _mean_difference,
            n_resamples=resamples,
            vectorized=True,
            confidence_level=1 - alpha,
            method=method,
            rng=np.random.default_rng(seed),
        )
    return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high))


def _mean_difference(baseline: FloatArray, candidate: FloatArray, axis: int = -1) -> Any:
    return candidate.mean(axis=axis) - baseline.mean(axis=axis)
