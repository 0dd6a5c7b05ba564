"""How many GPU minutes runs take, from what was measured: never from a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..training import ARMS, Config

MEASURED = Path("docs/results/training-h200.json")
EPOCH = re.compile(r"an epoch of (?P<model>\S+), (?P<precision>\S+), (?P<arm>\S+), s a run")
IMAGES = 5000
"""In the epoch that was measured; classes of CIFAR-10 and its training images."""
CLASSES, ALL = 10, 50_000

Kind = tuple[str, str, bool]
"""A network, a precision, and whether ⊥Grad is on."""


@dataclass(frozen=True)
class Rates:
    """Training images a second for each kind of run, seconds to judge one, and where both are from."""

    images_per_second: Mapping[Kind, float]
    judging: float
    source: str

    def seconds(self, config: Config) -> float | None:
        """What a run takes; None where nothing like it was measured."""
        rate = self.images_per_second.get(kind_of(config))
        return None if rate is None else images_of(config) / rate + self.judging


def kind_of(config: Config) -> Kind:
    """What decides the speed of training."""
    return config.model, config.precision, ARMS[config.arm].orthogonal is not None


def images_of(config: Config) -> int:
    """Training images that a run sees over all epochs."""
    return config.epochs * (config.labels_per_class * CLASSES or ALL)


def rates(records: Iterable[Mapping[str, Any]], measured: Path = MEASURED) -> Rates:
    """From the record of a benchmark if there is one, else from the clocks of runs that were done."""
    if measured.is_file():
        return _of_benchmark(json.loads(measured.read_text(encoding="utf-8")), measured)
    return _of_runs(records)


def _of_benchmark(found: Mapping[str, Any], path: Path) -> Rates:
    speeds: dict[Kind, float] = {}
    judging = 0.0
    for claim in found["claims"]:
        if match := EPOCH.fullmatch(claim["what"]):
            speeds[match["model"], match["precision"], match["arm"] != "baseline"] = IMAGES / float(claim["value"])
        elif claim["what"].startswith("ResNet-18 judges them, tf32"):
            judging = float(claim["value"])
    device = found.get("environment", {}).get("device", "a GPU")
    return Rates(speeds, judging, f"measured by `orthograd bench --training` on {device} ({path})")


def _of_runs(records: Iterable[Mapping[str, Any]]) -> Rates:
    spent: dict[Kind, list[float]] = {}
    judging = []
    for record in records:
        config = Config.from_dict(record["config"])
        spent.setdefault(kind_of(config), []).append(images_of(config) / record["seconds"]["training"])
        judging.append(float(record["seconds"]["evaluation"]))
    speeds = {kind: sum(values) / len(values) for kind, values in spent.items()}
    source = "by the clocks of finished runs, too long where several ran side by side" if speeds else "not measured yet"
    return Rates(speeds, sum(judging) / len(judging) if judging else 0.0, source)


def minutes_of(records: Iterable[Mapping[str, Any]]) -> float:
    """Minutes in which at least one of these runs was at work, as far as records tell when they ended.

    Where they do not, the sum of the runs' own clocks, which is more where several ran side by side.

    >>> run = {"seconds": {"training": 50.0, "evaluation": 10.0}}
    >>> minutes_of([run, run]), minutes_of([{**run, "ended": 100.0}, {**run, "ended": 130.0}])
    (2.0, 1.5)
    """
    runs = list(records)
    clocks = [float(sum(run["seconds"].values())) for run in runs]
    ends = [float(run["ended"]) for run in runs if "ended" in run]
    if len(ends) < len(clocks):
        return sum(clocks) / 60
    total, until = 0.0, float("-inf")
    for start, end in sorted((end - clock, end) for clock, end in zip(clocks, ends, strict=True)):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 60
