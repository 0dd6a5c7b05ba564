"""Numbers as the tables show them, with enough digits that a verdict can be seen from them."""

from __future__ import annotations

from ..lab.comparison.page.tables import typeset
from ..statistics import Comparison, Interval
from ..statistics.verdict import probability

MARK = "†"
"""After an interval where the t interval and the bootstrap interval disagree about zero."""


def signed(value: float, digits: int) -> str:
    """A number with its sign; zero has none.

    >>> signed(-0.0123, 2), signed(-0.0003, 3)
    ('−0.01', '0.000')
    """
    text = f"{value:+.{digits}f}"
    return typeset(text) if float(text) else text[1:]


def end_text(value: float, digits: int) -> str:
    """An end of an interval, with more digits where it would be rounded to zero.

    >>> end_text(-0.0003, 3), end_text(0.0, 3)
    ('−0.0003', '0.000')
    """
    most = digits + 9  # less is zero
    return signed(value, next((n for n in range(digits, most) if float(f"{value:.{n}f}")), digits))


def interval_text(difference: float, interval: Interval, digits: int, *, bootstrap: Interval | None = None) -> str:
    """A difference and its interval; marked where a bootstrap interval disagrees about zero.

    >>> interval_text(-0.02, Interval(-0.04, 0.0001), 2, bootstrap=Interval(-0.03, -0.01))
    '−0.02 (−0.04 to +0.0001)†'
    """
    disagree = bootstrap is not None and (0.0 in interval) != (0.0 in bootstrap)
    ends = " to ".join(end_text(value, digits) for value in interval)
    return f"{signed(difference, digits)} ({ends}){MARK * disagree}"


def difference_text(row: Comparison, digits: int) -> str:
    """The paired difference of a comparison and its interval, marked like `interval_text`."""
    return interval_text(row.difference, row.interval, digits, bootstrap=row.bootstrap_interval)


def p_text(p: float | None) -> str:
    """A p-value, or a dash for none.

    >>> p_text(0.04996), p_text(9e-07), p_text(None)
    ('0.04996', '9 × 10⁻⁷', '–')
    """
    return "–" if p is None else typeset(probability(p))
