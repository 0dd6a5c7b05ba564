"""Statements of the theory, each with a measured number and its bound."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Statement:
    """A claim with a number that can refute it.

    >>> Statement("the sky is high", "its height, m", 9e3, "≥", 1e3).holds
    True
    """

    says: str
    measured: str
    value: float
    relation: str
    bound: float

    def __post_init__(self) -> None:
        if self.relation not in ("≤", "≥"):
            raise ValueError(f"expected the relation ≤ or ≥, got {self.relation!r}")

    @property
    def holds(self) -> bool:
        """True if the measured number keeps the bound; NaN keeps none."""
        return self.value <= self.bound if self.relation == "≤" else self.value >= self.bound


@dataclass(frozen=True)
class Demonstration:
    """Statements of one theorem, and the curves of their figure."""

    name: str
    title: str
    statements: tuple[Statement, ...]
    curves: dict[str, Any] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        """The demonstration as plain data."""
        rows = [asdict(statement) | {"holds": statement.holds} for statement in self.statements]
        return {"name": self.name, "title": self.title, "statements": rows, "curves": rounded(self.curves)}


def rounded(value: Any, digits: int = 6) -> Any:
    """Plain data with numbers of six digits: enough to draw from.

    >>> rounded({"slope": [1 / 3, 2]})
    {'slope': [0.333333, 2]}
    """
    if isinstance(value, dict):
        return {name: rounded(part, digits) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def thinned(values: list[Any], most: int = 150) -> list[Any]:
    """At most about so many of the values, closer together at the beginning: [index, value] pairs.

    >>> thinned([5.0, 6.0])
    [[0, 5.0], [1, 6.0]]
    """
    last = max(1, len(values) - 1)
    chosen = {round(last ** (i / most)) for i in range(most + 1)} | {round(last * i / most) for i in range(most + 1)}
    return [[i, values[i]] for i in sorted(chosen | {0}) if i < len(values)]
