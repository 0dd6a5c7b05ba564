"""What a printed effect size and its number of seeds say, when the samples behind them are not at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .effect import effective_root, exact_interval, normal_interval
from .hypothesis import student_p
from .interval import Interval
from .samples import checked_alpha, whole


@dataclass(frozen=True)
class ReportedEffect:
    """Student's test and both intervals of a d that someone printed.

    With as many seeds in both arms Welch's t is Student's, with between n − 1 and 2n − 2 degrees of freedom:
    its p lies between ``p`` and ``largest_welch_p``. With unequal arms d does not tell, and that is None.
    """

    d: float
    n1: int
    n2: int
    t: float
    degrees: int
    p: float
    largest_welch_p: float | None
    normal: Interval
    exact: Interval


def from_effect_size(d: float, n1: int, n2: int | None = None, *, alpha: float = 0.05) -> ReportedEffect:
    """t = d √(n₁ n₂/(n₁ + n₂)) with n₁ + n₂ − 2 degrees of freedom; one n stands for both arms.

    The logit variance in the paper's table 1, printed with p = 2 × 10⁻⁷:

    >>> found = from_effect_size(2.00, 20)
    >>> f"t = {found.t:.2f}, p = {found.p:.0e}, {found.normal.low:.2f} to {found.normal.high:.2f}"
    't = 6.32, p = 2e-07, 1.24 to 2.76'
    """
    n2 = n1 if n2 is None else n2
    if min(whole(n1), whole(n2)) < 2:
        raise ValueError(f"expected at least 2 seeds in both arms, got {n1} and {n2}")
    if math.isnan(d):
        raise ValueError(f"expected an effect size, got {d!r}")
    t, degrees, alpha = d * effective_root(n1, n2), n1 + n2 - 2, checked_alpha(alpha)
    return ReportedEffect(
        d=float(d),
        n1=n1,
        n2=n2,
        t=t,
        degrees=degrees,
        p=student_p(t, degrees),
        largest_welch_p=student_p(t, n1 - 1) if n1 == n2 else None,
        normal=normal_interval(d, n1, n2, alpha=alpha),
        exact=exact_interval(d, n1, n2, alpha=alpha),
    )
