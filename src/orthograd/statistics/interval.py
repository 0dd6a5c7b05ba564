"""The two ends of a confidence interval."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """From low to high, both included.

    >>> 0.5 in Interval(0.0, 1.0)
    True
    """

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def is_inside(self, margin: float) -> bool:
        """Whether all of it lies strictly between −margin and margin."""
        return -margin < self.low and self.high < margin

    def over(self, divisor: float) -> Interval:
        """Both ends divided by a positive number."""
        return Interval(self.low / divisor, self.high / divisor)
