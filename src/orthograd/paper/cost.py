"""How many GPU minutes runs take, from what was measured: never from a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..lab.training.arms import ARMS
from ..lab.training.config import Config
from .evidence import shares, with_whole_clocks

MEASURED = Path("docs/results/training-h200.json"), Path("docs/results/judging-h200.json")
EPOCH = re.compile(r"an epoch of (?P<model>\S+), (?P<precision>\S+), (?P<arm>\S+), s a run")
IMAGES = 5000
"""In the epoch that was measured; classes of CIFAR-10 and its training images."""
CLASSES, ALL = 10, 50_000

JUDGES = re.compile(r"ResNet-18 judges them, (?P<precision>\S+), s")

Kind = tuple[str, str, bool]
"""A network, a precision, and whether ⊥Grad is on."""
Judge = tuple[str, str, str]
"""A network, a precision, and the images that it is judged by."""


@dataclass(frozen=True)
class Rates:
    """Training images a second for each kind of run, seconds to judge one by its shifts, and where both are from."""

    images_per_second: Mapping[Kind, float]
    judging: Mapping[Judge, float]
    source: str

    def seconds(self, config: Config) -> float | None:
        """What a run takes; None where no training like it was measured."""
        rate = self.images_per_second.get(kind_of(config))
        return None if rate is None else images_of(config) / rate + self._judged(config, rate)

    def _judged(self, config: Config, rate: float) -> float:
        """Seconds; of a network that nobody judged yet by the time of another, as much longer as it trains."""
        if (own := self.judging.get((config.model, config.precision, config.shifts))) is not None:
            return own
        found = []
        for (model, precision, shifts), seconds in self.judging.items():
            if shifts == config.shifts:
                theirs = self.images_per_second.get((model, precision, False), rate)
                found.append((precision != config.precision, seconds * theirs / rate))
        return min(found, default=(True, 0.0))[1]

    def completed(self, other: Rates) -> Rates:
        """These, and what they lack from the other ones."""
        new = {" ".join(kind[:2]) for kind in other.images_per_second.keys() - self.images_per_second.keys()}
        lacking = [*sorted(new), *(["judging"] if other.judging.keys() - self.judging.keys() else [])]
        return Rates(
            {**other.images_per_second, **self.images_per_second},
            {**other.judging, **self.judging},
            f"{self.source}; {', '.join(lacking)} {other.source}" if lacking else self.source,
        )


def kind_of(config: Config) -> Kind:
    """What decides the speed of training."""
    return config.model, config.precision, ARMS[config.arm].orthogonal is not None


def images_of(config: Config) -> int:
    """Training images that a run sees over all epochs."""
    return config.epochs * (config.labels_per_class * CLASSES or ALL)


def rates(records: Iterable[Mapping[str, Any]], measured: Iterable[Path] = MEASURED) -> Rates:
    """From records of benchmarks if there are some; what they lack, from the clocks of runs that were done."""
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in measured if path.is_file()}
    return _of_benchmarks(found).completed(_of_runs(records)) if found else _of_runs(records)


def _of_benchmarks(found: Mapping[Path, Mapping[str, Any]]) -> Rates:
    speeds: dict[Kind, float] = {}
    judging: dict[Judge, float] = {}
    for claim in (claim for record in found.values() for claim in record["claims"]):
        if match := EPOCH.fullmatch(claim["what"]):
            speeds[match["model"], match["precision"], match["arm"] != "baseline"] = IMAGES / float(claim["value"])
        elif match := JUDGES.fullmatch(claim["what"]):
            judging["resnet18", match["precision"], "cifar10c"] = float(claim["value"])
    devices = {record.get("environment", {}).get("device", "a GPU") for record in found.values()}
    where = f"{' and '.join(sorted(devices))} ({', '.join(map(str, found))})"
    return Rates(speeds, judging, f"measured by `orthograd bench` on {where}")


def _of_runs(records: Iterable[Mapping[str, Any]]) -> Rates:
    """Medians; a clock that tells of the last part of training alone does not count."""
    runs = list(records)
    is_whole = {id(run) for run in with_whole_clocks(runs)}
    spent: dict[Kind, list[float]] = {}
    judging: dict[Judge, list[float]] = {}
    for record, seconds in zip(runs, shares(runs), strict=True):
        config = Config.from_dict(record["config"])
        if id(record) in is_whole:
            spent.setdefault(kind_of(config), []).append(images_of(config) / seconds["training"])
        judging.setdefault((config.model, config.precision, config.shifts), []).append(seconds["evaluation"])
    clocks = "by the clocks of finished runs"
    if not all("ended" in run for run in runs):
        clocks += ", too long where several ran side by side"
    return Rates(
        {kind: median(values) for kind, values in spent.items()},
        {judge: median(values) for judge, values in judging.items()},
        clocks if runs else "not measured yet",
    )
