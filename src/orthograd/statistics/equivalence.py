"""Is the difference too small to matter? Two one-sided tests against a stated margin."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike
from scipy import stats

from .difference import estimated_difference, t_interval
from .hypothesis import t_statistic
from .interval import Interval
from .samples import checked_alpha, checked_margin


@dataclass(frozen=True)
class Equivalence:
    """The margin, the p of both one-sided tests and their larger one, and the 1 − 2α interval."""

    margin: float
    p_below: float
    p_above: float
    p: float
    interval: Interval


def tost(
    baseline: ArrayLike, candidate: ArrayLike, *, margin: float, paired: bool = True, alpha: float = 0.05
) -> Equivalence:
    """p = max(P(T_ν > (D + m)/error), P(T_ν < (D − m)/error)), by pairs or by Welch.

    p < α says that the difference lies between −m and m, as does a 1 − 2α interval inside that range. State the
    margin before seeing the data; the test that finds no difference says nothing about equality.

    >>> found = tost([1.0, 2.0, 3.0], [1.1, 2.0, 2.9], margin=0.5)
    >>> found.p < 0.05, found.interval.is_inside(0.5)
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
