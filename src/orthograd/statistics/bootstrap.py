"""An interval of the mean difference that assumes no normal distribution."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .difference import pooled_sd
from .interval import Interval
from .samples import Arms, FloatArray, arms, checked_alpha, moments_of


def bootstrap_interval(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    paired: bool = True,
    alpha: float = 0.05,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """The bias-corrected and accelerated bootstrap interval of the mean difference.

    Pairs are drawn as pairs. Without any spread the interval is the difference itself. With fewer than about ten
    seeds it is too narrow: the t interval is then the one to trust.

    >>> bootstrap_interval([3.0, 5.0], [1.0, 3.0])
    Interval(low=2.0, high=2.0)

    Reference: Efron, "Better bootstrap confidence intervals", 1987.
    """
    both = arms(baseline, candidate, paired=paired)
    checked_alpha(alpha)
    if resamples < 1:
        raise ValueError(f"expected at least 1 resample, got {resamples!r}")
    center, spread, data = _standardised_pairs(both) if paired else _standardised_arms(both)
    if spread == 0:
        return Interval(center, center)
    ends = _ends(data, alpha=alpha, resamples=resamples, seed=seed, method="BCa")
    if not np.isfinite(ends).all():
        ends = _ends(data, alpha=alpha, resamples=resamples, seed=seed, method="percentile")
    return Interval(center + spread * ends.low, center + spread * ends.high)


# BCa does not depend on shift and scale, and the cubes in it neither underflow nor cancel for values around 1.
def _standardised_pairs(both: Arms) -> tuple[float, float, tuple[FloatArray, ...]]:
    moments = moments_of(both.differences, scale=both.scale)
    return moments.mean, moments.sd, (_on_grid((both.differences - moments.mean) / (moments.sd or 1.0)),)


def _standardised_arms(both: Arms) -> tuple[float, float, tuple[FloatArray, ...]]:
    baseline, candidate = both.moments
    spread = pooled_sd(baseline, candidate)
    centered = both.baseline - baseline.mean, both.candidate - candidate.mean
    return both.difference, spread, tuple(_on_grid(arm / (spread or 1.0)) for arm in centered)


def _on_grid(values: FloatArray) -> FloatArray:
    # Sums of multiples of 2⁻⁴⁰ are exact: a resample of the same values in another order then ties with the sample,
    # and the correction for bias, which counts how many lie below it, does not hang on the last bit.
    return np.round(values * 2.0**40) / 2.0**40


def _ends(
    data: tuple[FloatArray, ...], *, alpha: float, resamples: int, seed: int, method: Literal["BCa", "percentile"]
) -> Interval:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # degenerate resamples make NaN, which the caller looks for
        found = stats.bootstrap(
            data,
            np.mean if len(data) == 1 else _mean_difference,
            n_resamples=resamples,
            vectorized=True,
            confidence_level=1 - alpha,
            method=method,
            rng=np.random.default_rng(seed),
        )
    return Interval(float(found.confidence_interval.low), float(found.confidence_interval.high))


def _mean_difference(baseline: FloatArray, candidate: FloatArray, axis: int = -1) -> Any:
    return baseline.mean(axis=axis) - candidate.mean(axis=axis)
