"""Numbers out of the records of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
Metrics = Mapping[str, Any]


def is_number(value: Any) -> bool:
    """Whether a metric is neither undefined (None) nor infinite ("inf").

    >>> is_number(0.5), is_number(None), is_number("inf")
    (True, False, False)
    """
    return isinstance(value, (int, float)) and math.isfinite(value)


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use.

    >>> [duration(seconds) for seconds in (0.534, 59.3, 90, 52_547, 3e5, 1e9)]
    ['0.534 s', '59.3 s', '1.5 min', '14.6 h', '3.47 days', '11,574 days']
    """
    units = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
    unit = next((unit for unit, size in units.items() if seconds >= (2 if unit == "days" else 1) * size), "s")
    amount = seconds / units[unit]
    return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:,.0f} {unit}"


def image_sets(record: Record) -> list[str]:
    """The names of the shifted image sets, as "noise.3", sorted: files keep no other order."""
    return sorted(name for name in record["metrics"] if name != "clean")


def shifts(record: Record) -> list[str]:
    """The names of the shifts, sorted.

    >>> shifts({"metrics": {"clean": {}, "noise.1": {}, "noise.2": {}, "blur.1": {}}})
    ['blur', 'noise']
    """
    return list(dict.fromkeys(name.rpartition(".")[0] for name in image_sets(record)))


def clean(record: Record) -> Metrics:
    """The metrics of clean test images."""
    found: Metrics = record["metrics"]["clean"]
    return found


def after_temperature(record: Record) -> Metrics:
    """The metrics of clean test images after temperature scaling."""
    found: Metrics = record["after_temperature"]["metrics"]
    return found


def shifted(record: Record) -> Metrics:
    """Each metric averaged over all shifts and severities; None where any of them is no number."""
    return {name: mean_over_shifts(record, name) for name in record["metrics"][image_sets(record)[0]]}


def mean_over_shifts(record: Record, metric: str) -> float | None:
    """A metric averaged over all shifts and severities; None without such, or where any of them is no number."""
    return _mean(record["metrics"][name][metric] for name in image_sets(record))


def by_severity(records: Sequence[Record], metric: str, *, shift: str | None = None) -> list[list[float]]:
    """For each run the metric at severity 0 (clean), 1, 2 …, of one shift or averaged over all; NaN if undefined."""
    found = []
    for record in records:
        levels: dict[int, list[Any]] = {0: [clean(record)[metric]]}
        for name in image_sets(record):
            kind, _, level = name.rpartition(".")
            if shift in (None, kind):
                levels.setdefault(int(level), []).append(record["metrics"][name][metric])
        found.append([_number(_mean(levels[level])) for level in sorted(levels)])
    return found


def _mean(values: Iterable[Any]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known and all(map(is_number, known)) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
