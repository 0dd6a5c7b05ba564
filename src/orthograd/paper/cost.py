"""How many GPU minutes runs take, from what was measured: never from a guess."""

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

Kind = tuple[str, str, bool]
"""A network, a precision, and whether ⊥Grad is on."""
Tested = tuple[str, str, str]
"""A network, a precision, and the shifted images that it is evaluated on."""


@dataclass(frozen=True)
class Rates:
    """Training images a second for each kind of run, seconds to evaluate one on its shifts, and where both are from."""

    images_per_second: Mapping[Kind, float]
    evaluation: Mapping[Tested, float]
    source: str

    def seconds(self, config: Config) -> float | None:
        """What a run takes; None where no training like it was measured."""
        rate = self.images_per_second.get(kind_of(config))
        return None if rate is None else images_of(config) / rate + self._evaluation(config, rate)

    def _evaluation(self, config: Config, rate: float) -> float:
        """Seconds; of a network that was never evaluated by the time of another, as much longer as it trains."""
        if (own := self.evaluation.get((config.model, config.precision, config.shifts))) is not None:
            return own
        guesses = []
        for (model, precision, shifts), seconds in self.evaluation.items():
            if shifts == config.shifts:
                theirs = self.images_per_second.get((model, precision, False), rate)
                guesses.append((precision != config.precision, seconds * theirs / rate))
        return min(guesses, default=(True, 0.0))[1]

    def completed(self, other: Rates) -> Rates:
        """These, and what they lack from the other ones."""
        new = {" ".join(kind[:2]) for kind in other.images_per_second.keys() - self.images_per_second.keys()}
        lacking = [*sorted(new), *(["evaluation"] if other.evaluation.keys() - self.evaluation.keys() else [])]
        return Rates(
            {**other.images_per_second, **self.images_per_second},
            {**other.evaluation, **self.evaluation},
            f"{self.source}; {', '.join(lacking)} {other.source}" if lacking else self.source,
        )


def kind_of(config: Config) -> Kind:
    """What decides the speed of training."""
    return config.model, config.precision, METHODS[config.method].orthogonal is not None


def images_of(config: Config) -> int:
    """Training images that a run sees over all epochs."""
    return config.epochs * (config.labels_per_class * CLASSES or ALL)


def rates(records: Iterable[Mapping[str, Any]], measured: Iterable[Path] = MEASURED) -> Rates:
    """From records of benchmarks if there are some; what they lack, from the clocks of runs that were done."""
    benchmarks = {path: json.loads(path.read_text(encoding="utf-8")) for path in measured if path.is_file()}
    return _of_benchmarks(benchmarks).completed(_of_runs(records)) if benchmarks else _of_runs(records)


def _of_benchmarks(benchmarks: Mapping[Path, Mapping[str, Any]]) -> Rates:
    speeds: dict[Kind, float] = {}
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
    """Medians; a clock that tells of the last part of training alone does not count."""
    runs = list(records)
    is_whole = {id(run) for run in with_whole_clocks(runs)}
    spent: dict[Kind, list[float]] = {}
    evaluation: dict[Tested, list[float]] = {}
    for record, seconds in zip(runs, shares(runs), strict=True):
        config = Config.from_dict(record["config"])
        if id(record) in is_whole:
            spent.setdefault(kind_of(config), []).append(images_of(config) / seconds["training"])
        evaluation.setdefault((config.model, config.precision, config.shifts), []).append(seconds["evaluation"])
    clocks = "by the clocks of finished runs"
    if not all("ended" in run for run in runs):
        clocks += ", too long where several ran side by side"
    return Rates(
        {kind: median(values) for kind, values in spent.items()},
        {tested: median(values) for tested, values in evaluation.items()},
        clocks if runs else "not measured yet",
    )
