"""The noncentral t distribution, and its inversion: exact intervals of effect sizes and power come from here.

T = (Z + δ) / S with Z standard normal and S = √(χ²_ν / ν) independent of it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special, stats

from .interval import Interval
from .samples import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
_TAIL = 1e-18  # what lies beyond is less than the rounding of a probability
_WIDEST_Z = 9.0  # Φ(−9) ≈ 1e−19


def noncentral_t_cdf(t: float, degrees: float, noncentrality: float) -> float:
    """P(T ≤ t) = P(tS − Z ≥ δ) = ∫ φ(z) P(S ≥ (z + δ)/t) dz.

    >>> round(noncentral_t_cdf(2.0, 8, 1.0), 4)
    0.7999
    """
    # scipy's own, a series, gives NaN in the tails from some thousand degrees of freedom, and for t about 1e8.
    if t < 0:
        return 1 - noncentral_t_cdf(-t, degrees, -noncentrality)
    certain, hopeless = t * _quantiles_of_s(degrees, _TAIL) - noncentrality
    low, high = np.clip((certain, hopeless), -_WIDEST_Z, _WIDEST_Z)
    half = float(high - low) / 2
    z = low + half * (1 + _NODES)
    ratio = np.maximum(z + noncentrality, 0) / (t or 1.0)
    tail = special.chdtrc(degrees, degrees * np.minimum(ratio, 1e100) ** 2)
    between = half * float(_WEIGHTS @ (np.exp(-(z**2) / 2) * tail)) / math.sqrt(2 * math.pi)
    return min(1.0, float(special.ndtr(certain)) + between)


def noncentrality_interval(t: float, degrees: float, *, alpha: float = 0.05) -> Interval:
    """The δ that have the observed t between the α/2 and 1 − α/2 quantiles of their distribution.

    >>> low, high = noncentrality_interval(2.0, 8)
    >>> round(low, 2), round(high, 2)
    (-0.23, 4.13)
    """
    if math.isinf(t):
        return Interval(t, t)
    return Interval(_noncentrality(t, degrees, 1 - alpha / 2), _noncentrality(t, degrees, alpha / 2))


def _noncentrality(t: float, degrees: float, probability: float) -> float:
    """The δ at which P(T ≤ t) is the probability: the 1 − probability quantile of tS − Z."""
    if t < 0:
        return -_noncentrality(-t, degrees, 1 - probability)
    # tS − Z < ts − z needs S < s or Z > z: quantiles with half the probability each enclose the one that is sought.
    tails = np.array([(1 - probability) / 2, 1 - probability / 2])
    low, high = t * np.sqrt(stats.chi2.ppf(tails, degrees) / degrees) + stats.norm.ppf(tails)

    def excess(noncentrality: float) -> float:
        return noncentral_t_cdf(t, degrees, noncentrality) - probability

    return float(optimize.brentq(excess, low, high, xtol=1e-12, rtol=1e-12))


def _quantiles_of_s(degrees: float, tail: float) -> FloatArray:
    """Where S has a probability of ``tail`` below, and above."""
    ends = 2 * special.gammaincinv(degrees / 2, tail), special.chdtri(degrees, tail)
    return np.sqrt(np.array(ends) / degrees)
