"""An effect as tables show it: the mean paired difference ⊥Grad − baseline with its 95% interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...statistics import Comparison, Interval, Verdict, holm
from ...statistics.verdict import verdict_of
from ..formats import interval_text
from ..verdicts.primary import FAMILY
from ..verdicts.rule import LEVEL

RECORDED = {
    "clean": "clean",
    "shifted": "shifted",
    "temperature-scaled": "after_temperature",
    "shifted-temperature-scaled": "shifted_after_temperature",
}
"""The tables in a record of `orthograd compare`, and the images of quantities."""


@dataclass(frozen=True)
class Effect:
    """The mean paired difference ⊥Grad − baseline of one metric, its 95% intervals, its p and the verdict.

    ``corrected_p`` has Holm's correction over the rows of the primary comparison.
    """

    difference: float
    interval: Interval
    p: float
    corrected_p: float
    verdict: Verdict = "inconclusive"
    bootstrap: Interval | None = None

    @classmethod
    def of(cls, row: Comparison) -> Effect:
        """The effect that a comparison measured.

        >>> from orthograd.statistics import compare
        >>> round(Effect.of(compare([0.2, 0.3], [0.1, 0.1])).difference, 3)
        -0.15
        """
        corrected_p = row.p if row.corrected_p is None else row.corrected_p
        return cls(row.difference, row.interval, row.p, corrected_p, row.verdict, row.bootstrap_interval)

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
        return interval_text(self.difference, self.interval, digits, bootstrap=self.bootstrap)


def recorded_effects(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Effect]:
    """The primary comparison in a record of `orthograd compare`, by quantity, with Holm's correction over its rows."""
    rows = {
        quantity: tables[recorded][metric]
        for recorded, images in RECORDED.items()
        for metric in tables.get(recorded, {})
        if (quantity := f"{images}.{metric}") in FAMILY
    }
    corrected = dict(zip(rows, holm([row["p"] for row in rows.values()]), strict=True))
    margins = {quantity: row["equivalence"]["p"] for quantity, row in rows.items() if row["equivalence"]}
    equivalent = dict(zip(margins, holm(list(margins.values())), strict=True))
    return {
        quantity: Effect(
            row["difference"],
            Interval(*row["interval"]),
            row["p"],
            corrected[quantity],
            verdict_of(
                difference=row["difference"],
                is_significant=corrected[quantity] < LEVEL,
                is_equivalent=equivalent.get(quantity, 1.0) < LEVEL,
                better=row["better"],
            ),
            Interval(*row["bootstrap_interval"]),
        )
        for quantity, row in rows.items()
    }
