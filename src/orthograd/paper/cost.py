"""How many GPU minutes runs take, from measurements only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..lab.bench.claim import EPOCH, EPOCH_IMAGES, EVALUATION, Claim
from ..lab.training.config import Config
from ..lab.training.methods import METHODS
from .evidence import shares, with_whole_clocks

MEASURED = Path("docs/results/training-h200.json"), Path("docs/results/evaluation-h200.json")
CLASSES, ALL = 10, 50_000
"""Classes of CIFAR-10, and its training images."""

Trained = tuple[str, str, bool]
"""A network, a precision, and whether ⊥Grad is on."""
Tested = tuple[str, str, str]
"""A network, a precision, and the corrupted images that it is evaluated on."""


@dataclass(frozen=True)
class Rates:
    """Training images a second, seconds to evaluate a run on its corrupted images, and the source of both."""

    images_per_second: Mapping[Trained, float]
    evaluation: Mapping[Tested, float]
    source: str

    def seconds(self, config: Config) -> float | None:
        """Seconds that a run takes; None if no such training was measured."""
        rate = self.images_per_second.get(trained_as(config))
        return None if rate is None else images_of(config) / rate + self._evaluation(config, rate)

    def _evaluation(self, config: Config, rate: float) -> float:
        """Seconds of evaluation; without a measurement, another network's in proportion to their training."""
        if (own := self.evaluation.get((config.model, config.precision, config.shifts))) is not None:
            return own
        guesses = []
        for (model, precision, shifts), seconds in self.evaluation.items():
            if shifts == config.shifts:
                theirs = self.images_per_second.get((model, precision, False), rate)
                guesses.append((precision != config.precision, seconds * theirs / rate))
        return min(guesses, default=(True, 0.0))[1]

    def completed(self, other: Rates) -> Rates:
        """These rates, completed from others."""
        new = {" ".join(trained[:2]) for trained in other.images_per_second.keys() - self.images_per_second.keys()}
        lacking = [*sorted(new), *(["evaluation"] if other.evaluation.keys() - self.evaluation.keys() else [])]
        return Rates(
            {**other.images_per_second, **self.images_per_second},
            {**other.evaluation, **self.evaluation},
            f"{self.source}; {', '.join(lacking)} {other.source}" if lacking else self.source,
        )


def trained_as(config: Config) -> Trained:
    """The parts of a config that decide the speed of training."""
    return config.model, config.precision, METHODS[config.method].orthogonal is not None


def images_of(config: Config) -> int:
    """Training images that a run sees over all epochs."""
    return config.epochs * (config.labels_per_class * CLASSES or ALL)


def rates(records: Iterable[Mapping[str, Any]], measured: Iterable[Path] = MEASURED) -> Rates:
    """Rates by the clocks of finished runs, completed from records of benchmarks, which leave out all but training."""
    benchmarks = {path: json.loads(path.read_text(encoding="utf-8")) for path in measured if path.is_file()}
    by_runs = _of_runs(records)
    if not benchmarks:
        return by_runs
    return by_runs.completed(_of_benchmarks(benchmarks)) if by_runs.images_per_second else _of_benchmarks(benchmarks)


def _of_benchmarks(benchmarks: Mapping[Path, Mapping[str, Any]]) -> Rates:
    speeds: dict[Trained, float] = {}
    evaluation: dict[Tested, float] = {}
    for claim in (Claim.from_row(row) for record in benchmarks.values() for row in record["claims"]):
        key = claim.key
        if key.what == EPOCH and not key.concurrent:
            speeds[key.model, key.precision, key.method != "baseline"] = EPOCH_IMAGES / claim.value
        elif key.what == EVALUATION:
            evaluation[key.model, key.precision, "cifar10c"] = claim.value
    devices = {record["environment"]["device"] for record in benchmarks.values()}
    where = f"{' and '.join(sorted(devices))} ({', '.join(map(str, benchmarks))})"
    return Rates(speeds, evaluation, f"measured by `orthograd bench` on {where}")


def _of_runs(records: Iterable[Mapping[str, Any]]) -> Rates:
    """Medians over runs whose clock covers all of their training."""
    runs = list(records)
    is_whole = {id(run) for run in with_whole_clocks(runs)}
    spent: dict[Trained, list[float]] = {}
    evaluation: dict[Tested, list[float]] = {}
    for record, seconds in zip(runs, shares(runs), strict=True):
        config = Config.from_dict(record["config"])
        if id(record) in is_whole:
            spent.setdefault(trained_as(config), []).append(images_of(config) / seconds["training"])
        evaluation.setdefault((config.model, config.precision, config.shifts), []).append(seconds["evaluation"])
    clocks = "by the clocks of finished runs"
    if not all("ended" in run for run in runs):
        clocks += ", too long where several ran side by side"
    return Rates(
        {trained: median(values) for trained, values in spent.items()},
        {tested: median(values) for tested, values in evaluation.items()},
        clocks if runs else "not measured yet",
    )
