"""Two arms over seeds, from the records of their runs: tables, a verdict, and the pairs behind them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..calibration import CONVENTIONS
from ..statistics import ComparisonTable, compare_table

Record = Mapping[str, Any]

TITLES = {
    "top1_accuracy": "accuracy, %",
    "top5_accuracy": "top-5 accuracy, %",
    "loss": "loss",
    "ece": "ECE",
    "brier": "Brier score",
    "entropy": "entropy",
    "max_softmax": "confidence",
    "max_logit": "max |logit|",
    "logit_variance": "logit variance",
    "confidence_accuracy_correlation": "confidence–accuracy",
    "smooth_ece": "smooth ECE",
    "aurc": "AURC",
}
METRICS = tuple(TITLES)
MARGINS = {"top1_accuracy": 1.0}
"""Differences that were said beforehand not to matter: one point of accuracy."""


@dataclass(frozen=True)
class ArmPair:
    """The records of a baseline and of a candidate, one of each for every seed, in the order of the seeds."""

    baseline: tuple[Record, ...]
    candidate: tuple[Record, ...]

    @classmethod
    def of(cls, records: Iterable[Record], *, baseline: str, candidate: str) -> ArmPair:
        """Pair the runs that share a seed; a seed that has only one of them is left out."""
        by_arm: dict[str, dict[int, Record]] = {baseline: {}, candidate: {}}
        for record in records:
            if record["config"]["arm"] in by_arm:
                by_arm[record["config"]["arm"]][record["config"]["seed"]] = record
        seeds = sorted(by_arm[baseline].keys() & by_arm[candidate].keys())
        if len(seeds) < 2:
            raise ValueError(f"expected at least 2 seeds of both {baseline} and {candidate}, got {len(seeds)}")
        return cls(*(tuple(by_arm[arm][seed] for seed in seeds) for arm in (baseline, candidate)))

    @property
    def arms(self) -> tuple[str, str]:
        """The names of both arms."""
        return str(self.baseline[0]["config"]["arm"]), str(self.candidate[0]["config"]["arm"])

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return [record["config"]["seed"] for record in self.baseline]

    def clean(self) -> ComparisonTable:
        """Clean test images, as the networks are."""
        return self._table(lambda record: record["metrics"]["clean"])

    def shifted(self) -> ComparisonTable:
        """The mean over all shifts and severities."""
        return self._table(_mean_over_shifts)

    def after_temperature(self) -> ComparisonTable | None:
        """Clean test images after temperature scaling; None where no held-out images were left."""
        if any(record["after_temperature"] is None for record in (*self.baseline, *self.candidate)):
            return None
        return self._table(lambda record: record["after_temperature"]["metrics"])

    def _table(self, metrics_of: Any) -> ComparisonTable:
        values = {}
        for name in METRICS:
            baseline, candidate = (
                [metrics_of(record)[name] for record in arm] for arm in (self.baseline, self.candidate)
            )
            arms = baseline, candidate
            if all(isinstance(value, (int, float)) for arm in arms for value in arm):  # neither undefined nor infinite
                values[name] = arms
        better = {name: CONVENTIONS[name].better for name in values}
        margins = {name: margin for name, margin in MARGINS.items() if name in values}
        return compare_table(values, better=better, margins=margins)


def verdict(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """What happened, in two sentences: calibration, then accuracy."""
    ece, accuracy = table["ece"], table["top1_accuracy"]
    words = {
        "better": f"{candidate} is better calibrated than {baseline}",
        "worse": f"{candidate} is worse calibrated than {baseline}",
        "equivalent": f"{candidate} and {baseline} are equally well calibrated",
        "undecided": f"{len_of(ece)} seeds do not decide whether {candidate} is better calibrated than {baseline}",
    }
    calibrated = (
        f"{words[ece.verdict]}: an ECE of {ece.candidate.mean:.3f} against {ece.baseline.mean:.3f} "
        f"(95 % interval of the difference {ece.interval.low:+.3f} to {ece.interval.high:+.3f}, "
        f"p = {ece.corrected_p:.2g} corrected for {len(table)} metrics)."
    )
    kept = {
        "better": "Its accuracy is higher",
        "worse": "Its accuracy is lower",
        "equivalent": f"Its accuracy is the same within {MARGINS['top1_accuracy']:g} point",
        "undecided": "Whether its accuracy is the same is undecided",
    }[accuracy.verdict]
    return f"{calibrated} {kept}: {accuracy.candidate.mean:.2f} % against {accuracy.baseline.mean:.2f} %."


def len_of(row: Any) -> int:
    """Seeds behind a row."""
    return int(row.baseline.n)


def markdown(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """The table for a README or an issue."""
    lines = [header(baseline, candidate), ["---"] * 8, *rows(table)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def as_csv(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """The table for a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header(baseline, candidate), *rows(table)])
    return text.getvalue()


def header(baseline: str, candidate: str) -> list[str]:
    """Names of the columns."""
    return ["metric", baseline, candidate, "difference, 95 %", "d, 95 %", "p", "p, Holm", "verdict"]


def rows(table: ComparisonTable) -> list[list[str]]:
    """A row of text for each metric."""
    found = []
    for row in table:
        digits = CONVENTIONS[str(row.metric)].digits
        low, high = row.interval
        exact = row.cohens_d.exact
        found.append(
            [
                str(row.metric),
                f"{row.baseline.mean:.{digits}f} ± {row.baseline.sd:.{digits}f}",
                f"{row.candidate.mean:.{digits}f} ± {row.candidate.sd:.{digits}f}",
                f"{row.difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})",
                f"{row.cohens_d.value:+.2f} ({exact.low:+.2f} to {exact.high:+.2f})",
                f"{row.p:.2g}",
                f"{row.corrected_p:.2g}",
                row.verdict,
            ]
        )
    return found


def by_severity(records: Sequence[Record], metric: str) -> list[list[float]]:
    """For each run the metric at severity 0 (clean) to 5, averaged over the shifts."""
    found = []
    for record in records:
        levels: dict[int, list[float]] = {0: [record["metrics"]["clean"][metric]]}
        for name, metrics in record["metrics"].items():
            if name != "clean":
                levels.setdefault(int(name.rpartition(".")[2]), []).append(metrics[metric])
        found.append([sum(levels[level]) / len(levels[level]) for level in sorted(levels)])
    return found


def _mean_over_shifts(record: Record) -> dict[str, Any]:
    shifts = [metrics for name, metrics in record["metrics"].items() if name != "clean"]
    found: dict[str, Any] = {}
    for name in METRICS:
        values = [metrics[name] for metrics in shifts]
        is_known = all(isinstance(value, (int, float)) for value in values)
        found[name] = sum(values) / len(values) if is_known else None
    return found
