"""Two methods over seeds: pairs of runs, their tables, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...calibration import CONVENTIONS
from ...statistics import Comparison, ComparisonTable, compare_table
from ...statistics.verdict import probability
from ..jobs.record import difference, fingerprint_of
from .formats import TITLES
from .records import (
    Metrics,
    Record,
    after_temperature,
    clean,
    image_sets,
    is_number,
    shifted,
    shifted_after_temperature,
)

MARGINS = {"top1_accuracy": 1.0}
"""Equivalence margins, fixed before the runs: one point of accuracy."""


@dataclass(frozen=True)
class MethodPair:
    """The records of a baseline and of a candidate, one of each for every seed, in the order of the seeds."""

    baseline: tuple[Record, ...]
    candidate: tuple[Record, ...]

    @classmethod
    def of(cls, records: Iterable[Record], *, baseline: str, candidate: str) -> MethodPair:
        """Pair the runs that share a seed; seeds that only one method has are dropped."""
        pairs = _pairs(records, baseline, candidate)
        if len(pairs) < 2:
            raise ValueError(f"expected at least 2 seeds of both {baseline} and {candidate}, got {len(pairs)}")
        return cls(*zip(*pairs, strict=True))

    @classmethod
    def if_enough(cls, records: Iterable[Record], baseline: str, candidate: str) -> MethodPair | None:
        """The pair, or None where fewer than two seeds have both runs."""
        pairs = _pairs(records, baseline, candidate)
        return cls(*zip(*pairs, strict=True)) if len(pairs) > 1 else None

    def of_seeds(self, seeds: Collection[int]) -> MethodPair:
        """The pair restricted to these seeds."""
        methods = (self.baseline, self.candidate)
        return MethodPair(*(tuple(run for run in method if run["config"]["seed"] in seeds) for method in methods))

    @property
    def methods(self) -> tuple[str, str]:
        """The names of both methods."""
        return str(self.baseline[0]["config"]["method"]), str(self.candidate[0]["config"]["method"])

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return [record["config"]["seed"] for record in self.baseline]

    @property
    def records(self) -> tuple[Record, ...]:
        """All runs, those of the baseline first."""
        return (*self.baseline, *self.candidate)

    @property
    def is_shifted(self) -> bool:
        """True if every run was also evaluated on corrupted images."""
        return all(image_sets(record) for record in self.records)

    @property
    def is_scaled(self) -> bool:
        """True if every run has a temperature, fitted on held-out samples."""
        return all(record["after_temperature"] is not None for record in self.records)

    @cached_property
    def tables(self) -> dict[str, ComparisonTable]:
        """Tables by image set: clean, shifted (mean over corruptions and severities), each also temperature-scaled."""
        tables = {"clean": self._table(clean)}
        if self.is_shifted:
            tables["shifted"] = self._table(shifted)
        if self.is_scaled:
            tables["temperature-scaled"] = self._table(after_temperature)
        if all(map(shifted_after_temperature, self.records)):
            tables["shifted-temperature-scaled"] = self._table(shifted_after_temperature)
        return tables

    def _table(self, metrics_of: Callable[[Record], Metrics]) -> ComparisonTable:
        return compared(*([metrics_of(record) for record in method] for method in (self.baseline, self.candidate)))


def compared(baseline: Sequence[Metrics], candidate: Sequence[Metrics]) -> ComparisonTable:
    """The table of two methods from the metrics of each seed, less those that are undefined or infinite in some run."""
    known = {}
    for name in TITLES:
        values: list[Any] = [metrics.get(name) for metrics in (*baseline, *candidate)]
        if all(map(is_number, values)):
            known[name] = values[: len(baseline)], values[len(baseline) :]
    better = {name: CONVENTIONS[name].better for name in known}
    margins = {name: margin for name, margin in MARGINS.items() if name in known}
    return compare_table(known, better=better, margins=margins)


def verdict(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """The verdict with its statistics: calibration, then accuracy."""
    ece, accuracy = table["ece"].verdict, table["top1_accuracy"].verdict
    calibrated = {
        "better": f"{candidate} is better calibrated than {baseline}",
        "worse": f"{candidate} is worse calibrated than {baseline}",
        "equivalent": f"{candidate} and {baseline} are equally well calibrated",
        "inconclusive": f"No difference in calibration between {candidate} and {baseline} was detected",
    }[ece]
    accurate = {
        "better": f"{candidate} is more accurate",
        "worse": f"{candidate} is less accurate",
        "equivalent": f"Accuracy is equivalent within {MARGINS['top1_accuracy']:g} point",
        "inconclusive": "No difference in accuracy was detected",
    }[accuracy]
    numbers = evidence(table, baseline=baseline, candidate=candidate)
    return f"{calibrated}: {numbers[0]}. {accurate}: {numbers[1]}. {numbers[2]}."


def evidence(table: ComparisonTable, *, baseline: str, candidate: str) -> tuple[str, str, str]:
    """The statistics of ECE and of accuracy, and what they have in common."""
    difference = f"{candidate} − {baseline}"
    ece, accuracy = table["ece"], table["top1_accuracy"]
    return (
        f"ECE {ece.candidate.mean:.3f} against {ece.baseline.mean:.3f} ({difference}: {_tested(ece, 3)})",
        f"{accuracy.candidate.mean:.2f}% against {accuracy.baseline.mean:.2f}% ({difference}: {_tested(accuracy, 2)})",
        f"{ece.baseline.n} seeds; p corrected for {len(table)} metrics",
    )


def _tested(row: Comparison, digits: int) -> str:
    """The difference, its 95% interval and its corrected p."""
    numbers = (f"{value:+.{digits}f}".replace("-", "−") for value in (row.difference, *row.interval))
    p = row.p if row.corrected_p is None else row.corrected_p
    tested = "p < 0.001" if p < 0.001 else f"p = {probability(p)}"
    return "{}, 95% interval {} to {}, {}".format(*numbers, tested)


def _pairs(records: Iterable[Record], baseline: str, candidate: str) -> list[tuple[Record, Record]]:
    """The pairs of runs of all seeds that both methods have, by seed."""
    by_method: dict[str, dict[int, Record]] = {baseline: {}, candidate: {}}
    for record in records:
        if record["config"]["method"] in by_method:
            by_method[record["config"]["method"]][record["config"]["seed"]] = record
    seeds = sorted(by_method[baseline].keys() & by_method[candidate].keys())
    pairs = [(by_method[baseline][seed], by_method[candidate][seed]) for seed in seeds]
    _require_alike([record for pair in pairs for record in pair])
    return pairs


def _require_alike(records: Sequence[Record]) -> None:
    """Raise ValueError where runs have different networks or data."""
    for record in records:
        if words := difference(fingerprint_of(records[0]), fingerprint_of(record)):
            one, other = (
                f"{each['hash']} ({each['config']['method']}, seed {each['config']['seed']})"
                for each in (records[0], record)
            )
            raise ValueError(
                f"expected runs that share their network and data, got {words}, in the runs {one} and {other}: "
                "their settings are the same, so the code or the data behind a name has changed. "
                "Keep runs from before and after in separate folders"
            )
