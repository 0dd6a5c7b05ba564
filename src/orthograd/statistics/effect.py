"""How large is the difference, in standard deviations? Cohen's d, Hedges' g, d_z, and their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike
from scipy import special, stats

from .difference import estimated_difference
from .hypothesis import t_statistic
from .interval import Interval
from .noncentral import noncentrality_interval
from .samples import arms, checked_alpha


@dataclass(frozen=True)
class EffectSize:
    """A standardised difference, its exact interval, and the normal approximation where there is one.

    The exact interval is of the effect in the population, which d and g both estimate: they share it.
    """

    value: float
    exact: Interval
    normal: Interval | None


def cohens_d(baseline: ArrayLike, candidate: ArrayLike, *, alpha: float = 0.05) -> EffectSize:
    """d = (x̄₁ − x̄₂) / s_p with the pooled standard deviation s_p; infinite where s_p alone is zero.

    >>> round(cohens_d([2.0, 4.0], [1.0, 3.0]).value, 4)  # 1 / √2
    0.7071

    Reference: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988.
    """
    d, n1, n2 = _d_of(baseline, candidate)
    return EffectSize(d, exact_interval(d, n1, n2, alpha=alpha), normal_interval(d, n1, n2, alpha=alpha))


def hedges_g(baseline: ArrayLike, candidate: ArrayLike, *, alpha: float = 0.05) -> EffectSize:
    """g = J(n₁ + n₂ − 2) · d: on average right, where d is too large by 1/J.

    >>> round(hedges_g([2.0, 4.0], [1.0, 3.0]).value, 4)
    0.3989
    """
    d, n1, n2 = _d_of(baseline, candidate)
    g = hedges_correction(n1 + n2 - 2) * d
    return EffectSize(g, exact_interval(d, n1, n2, alpha=alpha), normal_interval(g, n1, n2, alpha=alpha))


def paired_effect(baseline: ArrayLike, candidate: ArrayLike, *, alpha: float = 0.05) -> EffectSize:
    """d_z = D̄ / s_D of the seeds' differences D; not comparable with d, which ignores the pairs.

    >>> round(paired_effect([3.0, 5.0], [1.0, 1.0]).value, 4)  # 3 / √2
    2.1213
    """
    estimate = estimated_difference(baseline, candidate, method="paired")
    t, root = t_statistic(estimate), math.sqrt(estimate.degrees + 1)
    exact = noncentrality_interval(t, estimate.degrees, alpha=checked_alpha(alpha)).over(root)
    return EffectSize(t / root, exact, None)


def hedges_correction(degrees: float) -> float:
    """J(ν) = Γ(ν/2) / (√(ν/2) Γ((ν − 1)/2)), for ν > 1.

    >>> round(hedges_correction(2), 6)  # 1/√π
    0.56419

    Reference: Hedges, "Distribution theory for Glass's estimator of effect size", 1981.
    """
    if not degrees > 1:
        raise ValueError(f"expected more than 1 degree of freedom, got {degrees!r}")
    return math.exp(special.gammaln(degrees / 2) - special.gammaln((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def normal_interval(d: float, n1: int, n2: int, *, alpha: float = 0.05) -> Interval:
    """d ± z √((n₁ + n₂)/(n₁ n₂) + d²/(2 (n₁ + n₂))): the paper's.

    Too narrow with few seeds: with 5 an arm and a true effect of 2 it covers 94 %, not 95.

    >>> low, high = normal_interval(2.0, 20, 20)
    >>> round(low, 2), round(high, 2)
    (1.24, 2.76)
    """
    if math.isinf(d):
        return Interval(d, d)
    z = float(stats.norm.isf(checked_alpha(alpha) / 2))
    half = z * math.hypot(math.sqrt(1 / n1 + 1 / n2), d / math.sqrt(2 * (n1 + n2)))
    return Interval(d - half, d + half)


def exact_interval(d: float, n1: int, n2: int, *, alpha: float = 0.05) -> Interval:
    """The effects δ for which t = d √(n₁ n₂/(n₁ + n₂)) is not in either tail of the noncentral t.

    >>> low, high = exact_interval(2.0, 20, 20)
    >>> round(low, 2), round(high, 2)
    (1.23, 2.76)
    """
    root = effective_root(n1, n2)
    return noncentrality_interval(d * root, n1 + n2 - 2, alpha=checked_alpha(alpha)).over(root)


def effective_root(n1: int, n2: int) -> float:
    """√(n₁ n₂/(n₁ + n₂)): what turns d into t."""
    return math.sqrt(n1 * n2 / (n1 + n2))


def _d_of(baseline: ArrayLike, candidate: ArrayLike) -> tuple[float, int, int]:
    both = arms(baseline, candidate)
    n1, n2 = len(both.baseline), len(both.candidate)
    t = t_statistic(estimated_difference(both.baseline, both.candidate, method="student"))
    return t / effective_root(n1, n2), n1, n2
