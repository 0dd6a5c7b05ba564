"""The result of an evaluation: numbers that know what they mean, print well and turn into rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .conventions import CONVENTIONS

Interval = tuple[float, float]


@dataclass(frozen=True)
class Metrics:
    """Every metric by its name. None is a number that was not asked for, or that these samples do not define."""

    samples: int
    classes: int
    bins: int
    asked: tuple[str, ...]
    from_logits: bool = True
    confidence_level: float = 0.95
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    top1_accuracy: float | None = None
    top5_accuracy: float | None = None
    loss: float | None = None
    ece: float | None = None
    brier: float | None = None
    entropy: float | None = None
    max_softmax: float | None = None
    max_logit: float | None = None
    logit_variance: float | None = None
    confidence_accuracy_correlation: float | None = None
    ece_by_chance: float | None = None
    ece_by_chance_limit: float | None = None
    ece_l2: float | None = None
    ece_debiased: float | None = None
    mce: float | None = None
    ece_classwise: float | None = None
    brier_reliability: float | None = None
    brier_resolution: float | None = None
    brier_uncertainty: float | None = None
    smooth_ece: float | None = None
    ece_equal_mass: float | None = None
    aurc: float | None = None

    @property
    def conventions(self) -> dict[str, str]:
        """What each number means here, with the bins and the k that were used."""
        k = min(5, self.classes)
        return {name: CONVENTIONS[name].definition.format(bins=self.bins, k=k) for name in self.asked}

    def as_row(self) -> dict[str, float | None]:
        """The numbers alone, by name: a row of a table."""
        return {name: getattr(self, name) for name in self.asked}

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON, which knows no infinity: that is the string "inf"."""
        return {
            "samples": self.samples,
            "classes": self.classes,
            "bins": self.bins,
            "from": "logits" if self.from_logits else "probabilities",
            "metrics": {name: _plain(value) for name, value in self.as_row().items()},
            "confidence_level": self.confidence_level,
            "intervals": {name: [_plain(low), _plain(high)] for name, (low, high) in self.intervals.items()},
            "conventions": self.conventions,
        }

    def formatted(self, name: str) -> str:
        """One number as people read it: "75.18 %", "0.1680", "undefined"."""
        value, convention = getattr(self, name), CONVENTIONS[name]
        if value is None:
            return "needs logits" if convention.needs_logits and not self.from_logits else "undefined"
        return f"{value:.{convention.digits}f} {convention.unit}".rstrip()

    def formatted_interval(self, name: str) -> str:
        """The interval of a number, or nothing where there is none."""
        if name not in self.intervals:
            return ""
        low, high = self.intervals[name]
        digits = CONVENTIONS[name].digits
        return f"[{low:.{digits}f}, {high:.{digits}f}]"

    def __str__(self) -> str:
        widest = max(map(len, self.asked))
        lines = [f"{self.samples:,} samples, {self.classes} classes, {self.bins} bins"]
        for name in self.asked:
            lines.append(f"  {name:<{widest}}  {self.formatted(name):>12}  {self.formatted_interval(name)}".rstrip())
        return "\n".join(lines)


def _plain(value: float | None) -> float | str | None:
    return value if value is None or abs(value) < float("inf") else str(value)
