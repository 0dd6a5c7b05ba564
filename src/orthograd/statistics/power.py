"""The power of the t-tests, and the seeds needed, for planning a comparison.

Power is for an effect stated beforehand. "Achieved" power, computed at the observed effect, is a function of p: it
falls as p rises (about one half at p = α) and adds nothing. After the runs, read the confidence interval instead.

Reference: Hoenig and Heisey, "The abuse of power", 2001.
"""

from __future__ import annotations

import math

from scipy import special

from .effect import effective_root, noncentral_t_cdf
from .samples import checked_alpha, checked_power, whole


def paired_power(effect: float, seeds: int, *, alpha: float = 0.05) -> float:
    """``P(|T_{n−1, δ}| > t_{1−α/2})`` with δ = d_z √n: the power of the paired test for an effect d_z with n pairs.

    >>> round(paired_power(0.5, 34), 3)
    0.808
    """
    _check(effect, whole(seeds))
    return _two_sided_power(effect * math.sqrt(seeds), seeds - 1, alpha)


def independent_power(effect: float, seeds: int, other_seeds: int | None = None, *, alpha: float = 0.05) -> float:
    """``P(|T_{n₁+n₂−2, δ}| > t_{1−α/2})`` with δ = d √(n₁ n₂/(n₁ + n₂)); one n means that for both samples.

    >>> round(independent_power(0.5, 64), 3)
    0.801
    """
    other_seeds = seeds if other_seeds is None else other_seeds
    _check(effect, min(whole(seeds), whole(other_seeds)))
    return _two_sided_power(effect * effective_root(seeds, other_seeds), seeds + other_seeds - 2, alpha)


def seeds_needed(effect: float, *, power: float = 0.8, paired: bool = True, alpha: float = 0.05) -> int:
    """The smallest n (pairs, or seeds per method) with which the test has the given power for the effect.

    >>> seeds_needed(0.5), seeds_needed(0.5, paired=False)
    (34, 64)
    """
    checked_power(power)
    if effect == 0:
        raise ValueError("no number of seeds detects an effect of 0")
    power_with = paired_power if paired else independent_power

    def is_enough(seeds: int) -> bool:
        return power_with(effect, seeds, alpha=alpha) >= power

    enough = 2
    while not is_enough(enough):
        enough *= 2
        if enough > 2**60:
            raise ValueError(f"no number of seeds up to 2⁶⁰ detects an effect of {effect}")
    too_few = enough // 2
    # Power grows with n, so bisection gives the first n that is enough; 1 is too few for any test.
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough


def _two_sided_power(noncentrality: float, degrees: int, alpha: float) -> float:
    critical = -float(special.stdtrit(degrees, checked_alpha(alpha) / 2))  # stats.t.isf, without its checks of arrays
    below, above = (noncentral_t_cdf(t, degrees, noncentrality) for t in (-critical, critical))
    return min(1.0, 1 - above + below)


def _check(effect: float, seeds: int) -> None:
    if not math.isfinite(effect):
        raise ValueError(f"expected a finite effect size, got {effect!r}")
    if seeds < 2:
        raise ValueError(f"expected at least 2 seeds, got {seeds!r}")
