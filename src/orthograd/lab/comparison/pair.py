"""Two methods over seeds, from the records of their runs: pairs of runs, tables, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...calibration import CONVENTIONS
from ...statistics import ComparisonTable, compare_table
from ..jobs.record import difference, fingerprint_of
from .formats import TITLES
from .records import Metrics, Record, after_temperature, clean, image_sets, is_number, shifted

MARGINS = {"top1_accuracy": 1.0}
"""Equivalence margins, fixed before the runs: one point of accuracy."""


@dataclass(frozen=True)
class MethodPair:
    """The records of a baseline and of a candidate, one of each for every seed, in the order of the seeds."""

    baseline: tuple[Record, ...]
    candidate: tuple[Record, ...]

    @classmethod
    def of(cls, records: Iterable[Record], *, baseline: str, candidate: str) -> MethodPair:
        """Pair the runs that share a seed; a seed that has only one of them is left out."""
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
        """Whether every run was evaluated on shifted images too."""
        return all(image_sets(record) for record in self.records)

    @property
    def is_scaled(self) -> bool:
        """Whether every run has a temperature, for which held-out images were left."""
        return all(record["after_temperature"] is not None for record in self.records)

    @cached_property
    def tables(self) -> dict[str, ComparisonTable]:
        """Tables by test images: clean, shifted (mean over shifts and severities), temperature-scaled (clean)."""
        tables = {"clean": self._table(clean)}
        if self.is_shifted:
            tables["shifted"] = self._table(shifted)
        if self.is_scaled:
            tables["temperature-scaled"] = self._table(after_temperature)
        return tables

    def _table(self, metrics_of: Callable[[Record], Metrics]) -> ComparisonTable:
        known = {}
        for name in TITLES:
            methods = tuple(
                [metrics_of(record)[name] for record in method] for method in (self.baseline, self.candidate)
            )
            if all(is_number(value) for method in methods for value in method):
                known[name] = (methods[0], methods[1])
        better = {name: CONVENTIONS[name].better for name in known}
        margins = {name: margin for name, margin in MARGINS.items() if name in known}
        return compare_table(known, better=better, margins=margins)


def verdict(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """What happened, in two sentences: calibration, then accuracy."""
    ece, accuracy = table["ece"], table["top1_accuracy"]
    words = {
        "better": f"{candidate} is better calibrated than {baseline}",
        "worse": f"{candidate} is worse calibrated than {baseline}",
        "equivalent": f"{candidate} and {baseline} are equally well calibrated",
        "inconclusive": f"{ece.baseline.n} seeds detect no difference in calibration of {candidate} and {baseline}",
    }
    calibrated = (
        f"{words[ece.verdict]}: an ECE of {ece.candidate.mean:.3f} against {ece.baseline.mean:.3f} "
        f"(95% interval of {candidate} − {baseline}: {ece.interval.low:+.3f} to {ece.interval.high:+.3f}, "
        f"p = {ece.corrected_p:.2g} corrected for {len(table)} metrics)."
    )
    kept = {
        "better": "Its accuracy is higher",
        "worse": "Its accuracy is lower",
        "equivalent": f"Its accuracy is the same within {MARGINS['top1_accuracy']:g} point",
        "inconclusive": "No difference in accuracy was detected",
    }[accuracy.verdict]
    return f"{calibrated} {kept}: {accuracy.candidate.mean:.2f}% against {accuracy.baseline.mean:.2f}%."


def _pairs(records: Iterable[Record], baseline: str, candidate: str) -> list[tuple[Record, Record]]:
    """The runs of seeds that both methods have, by seed."""
    by_method: dict[str, dict[int, Record]] = {baseline: {}, candidate: {}}
    for record in records:
        if record["config"]["method"] in by_method:
            by_method[record["config"]["method"]][record["config"]["seed"]] = record
    seeds = sorted(by_method[baseline].keys() & by_method[candidate].keys())
    pairs = [(by_method[baseline][seed], by_method[candidate][seed]) for seed in seeds]
    _require_alike([record for pair in pairs for record in pair])
    return pairs


def _require_alike(records: Sequence[Record]) -> None:
    """Refuse runs of different networks or data, between which methods are not all that differs."""
    for record in records:
        if words := difference(fingerprint_of(records[0]), fingerprint_of(record)):
            one, other = (
                f"{each['hash']} ({each['config']['method']}, seed {each['config']['seed']})"
                for each in (records[0], record)
            )
            raise ValueError(
                f"expected runs that share their network and data, got {words}, in the runs {one} and {other}: "
                "their settings are the same, so the code or the data behind a name have changed in between. "
                "Runs from before and after need folders of their own"
            )
