"""An effect as tables show it: the mean paired difference ⊥Grad − baseline with its 95% interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...lab.comparison.page.tables import typeset
from ...statistics import Comparison, Interval


@dataclass(frozen=True)
class Effect:
    """The mean paired difference ⊥Grad − baseline of one metric, its 95% interval and its p.

    ``corrected_p`` has Holm's correction over the metrics of a comparison.
    """

    difference: float
    interval: Interval
    p: float
    corrected_p: float

    @classmethod
    def of(cls, row: Comparison) -> Effect:
        """The effect that a comparison measured.

        >>> from orthograd.statistics import compare
        >>> round(Effect.of(compare([0.2, 0.3], [0.1, 0.1])).difference, 3)
        -0.15
        """
        corrected_p = row.p if row.corrected_p is None else row.corrected_p
        return cls(row.difference, row.interval, row.p, corrected_p)

    @classmethod
    def recorded(cls, row: dict[str, Any]) -> Effect:
        """The effect in a row of the record of `orthograd compare`."""
        return cls(row["difference"], Interval(*row["interval"]), row["p"], row["corrected_p"])

    @property
    def is_above_zero(self) -> bool:
        """True if the whole interval is above zero."""
        return self.interval.low > 0

    @property
    def is_below_zero(self) -> bool:
        """True if the whole interval is below zero."""
        return self.interval.high < 0

    def text(self, digits: int) -> str:
        """The difference and its interval.

        >>> Effect(-0.0324, Interval(-0.0429, -0.0219), 0.0001, 0.0005).text(3)
        '−0.032 (−0.043 to −0.022)'
        """
        difference, low, high = (signed(value, digits) for value in (self.difference, *self.interval))
        return typeset(f"{difference} ({low} to {high})")


def signed(value: float, digits: int) -> str:
    """A number with its sign, except where it rounds to zero."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]
