"""Two samples over seeds, checked, with their means and standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

# 0.3 − 0.2 and 0.4 − 0.3 differ in the last bit. A spread or difference of that size, relative to the largest value, is
# rounding error: taken as data it would make t about 1e16 and p zero.
ROUNDING = 8 * float(np.finfo(np.float64).eps)

LEAST_ALPHA = 1e-12
_LARGEST = 1e300  # differences and sums of larger values are not finite


@dataclass(frozen=True)
class Moments:
    """Number of seeds n, mean x̄ = Σx/n and standard deviation s = √(Σ(x − x̄)²/(n − 1))."""

    n: int
    mean: float
    sd: float


@dataclass(frozen=True)
class TwoSamples:
    """The values of the baseline and of the candidate, one per seed.

    >>> two_samples([1.0, 3.0], [2.0, 2.5]).differences
    array([ 1. , -0.5])
    """

    baseline: FloatArray
    candidate: FloatArray

    @cached_property
    def scale(self) -> float:
        """The largest magnitude in both samples, which rounding errors are relative to."""
        return float(max(np.abs(self.baseline).max(), np.abs(self.candidate).max()))

    @cached_property
    def moments(self) -> tuple[Moments, Moments]:
        """The moments of the baseline and of the candidate."""
        return moments_of(self.baseline), moments_of(self.candidate)

    @cached_property
    def difference(self) -> float:
        """Mean of the candidate − mean of the baseline."""
        baseline, candidate = self.moments
        return _without_rounding(candidate.mean - baseline.mean, self.scale)

    @cached_property
    def differences(self) -> FloatArray:
        """Candidate − baseline, seed by seed."""
        return np.array([_without_rounding(float(x), self.scale) for x in self.candidate - self.baseline])


def two_samples(baseline: ArrayLike, candidate: ArrayLike, *, paired: bool = False) -> TwoSamples:
    """Both samples as float64; ValueError names what is wrong with them."""
    checked = TwoSamples(_sample(baseline, "baseline"), _sample(candidate, "candidate"))
    sizes = len(checked.baseline), len(checked.candidate)
    if paired and sizes[0] != sizes[1]:
        raise ValueError(
            f"pairs need one value per seed for both methods, got {sizes[0]} baseline, {sizes[1]} candidate"
        )
    return checked


def moments_of(values: FloatArray, *, scale: float | None = None) -> Moments:
    """The moments of one sample; rounding errors, relative to ``scale``, count as zero."""
    scale = float(np.abs(values).max()) if scale is None else scale
    # Squares of very large or small values overflow or underflow; division by a power of two is exact.
    unit = math.ldexp(1.0, math.frexp(scale)[1] - 1)
    mean, sd = float(np.mean(values / unit)) * unit, float(np.std(values / unit, ddof=1)) * unit
    return Moments(len(values), _without_rounding(mean, scale), _without_rounding(sd, scale))


def checked_alpha(alpha: float) -> float:
    """The level of a test, between 0 and 1, and large enough that 1 − alpha keeps its digits."""
    if 0 < alpha < LEAST_ALPHA:
        raise ValueError(f"expected alpha of {LEAST_ALPHA:g} or more, got {alpha!r}")
    return _checked_fraction(alpha, "alpha")


def whole(seeds: Any) -> int:
    """A number of seeds as an int; TypeError if it is not a whole number."""
    if isinstance(seeds, bool) or not hasattr(seeds, "__index__"):
        raise TypeError(f"expected a whole number of seeds, got {seeds!r}")
    return int(seeds)


def checked_power(power: float) -> float:
    """The power of a test, between 0 and 1."""
    return _checked_fraction(power, "power")


def checked_resamples(resamples: int) -> int:
    """The number of bootstrap resamples, at least 1."""
    if resamples < 1:
        raise ValueError(f"expected at least 1 resample, got {resamples!r}")
    return resamples


def checked_margin(margin: float) -> float:
    """The largest difference that does not matter: positive and finite."""
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"expected a margin > 0, got {margin!r}")
    return float(margin)


def _checked_fraction(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1, got {value!r}")
    return float(value)


def _sample(values: ArrayLike, name: str) -> FloatArray:
    if np.ma.is_masked(values):
        raise ValueError(
            f"expected {name} without a mask, got {np.ma.count_masked(values)} masked of {np.ma.size(values)} values; "
            "drop those seeds, for both methods if they are paired"
        )
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"expected {name} to hold real numbers, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"expected {name} (seeds,), got shape {array.shape}")
    if len(array) < 2:
        raise ValueError(f"expected {name} of at least 2 seeds, got {len(array)}")
    array = array.astype(np.float64)
    broken = np.flatnonzero(~(np.abs(array) <= _LARGEST))
    if len(broken):
        raise ValueError(f"expected {name} to be finite, got {array[broken[0]]} at position {broken[0]}")
    return array


def _without_rounding(value: float, scale: float) -> float:
    return 0.0 if abs(value) <= ROUNDING * scale else value
