"""Axes: where values lie on them, and which values are labelled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DECADES = 30.0
"""From this ratio of the largest to the smallest value on, a logarithmic axis shows more."""


@dataclass(frozen=True)
class Scale:
    """From low to high in values, from start to end on the page."""

    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies.

        >>> Scale(0, 10, 100, 0)(2.5), Scale(0.01, 1, 0, 100, is_logarithmic=True)(0.1)
        (75.0, 50.0)
        """
        if self.is_logarithmic:
            share = math.log10(value / self.low) / math.log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[tuple[float, str]]:
        """Round values on the axis with their labels.

        >>> Scale(0.013, 0.068, 0, 1).ticks()
        [(0.02, '0.02'), (0.04, '0.04'), (0.06, '0.06')]
        >>> Scale(0.0008, 3, 0, 1, is_logarithmic=True).ticks()
        [(0.001, '0.001'), (0.01, '0.01'), (0.1, '0.1'), (1.0, '1')]
        """
        return self._decades(about) if self.is_logarithmic else self._round(about)

    def _round(self, about: int) -> list[tuple[float, str]]:
        rough = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= 0.75 * rough)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(round(i * step, 12), f"{round(i * step, 12):.{digits}f}") for i in range(first, last + 1)]

    def _decades(self, about: int) -> list[tuple[float, str]]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, -(-(last - first + 1) // (about + 1)))
        return [(10.0**power, f"{10.0**power:g}") for power in range(first, last + 1, every)]


def around(values: Iterable[float], start: float, end: float, *, may_be_logarithmic: bool = False) -> Scale:
    """The axis that shows all values, with a little room at both ends.

    >>> around([1.0, 2.0], 0, 1).low
    0.92
    """
    shown = list(values)
    low, high = min(shown), max(shown)
    if may_be_logarithmic and low > 0 and high / low >= DECADES:
        room = (high / low) ** 0.05
        return Scale(low / room, high * room, start, end, is_logarithmic=True)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - room, high + room, start, end)
