"""The evidence: the records of the experiments' runs, the quantities in them, and how long the runs took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, product
from math import fsum
from pathlib import Path
from typing import Any

from ..calibration import CONVENTIONS, Convention
from ..lab.comparison.formats import TITLES
from ..lab.comparison.pair import MethodPair
from ..lab.comparison.records import Metrics, Record, image_sets, is_number
from ..lab.jobs.bundles import bundle_path, read_bundle, read_bundles, write_bundle
from ..lab.jobs.files import config_hash
from ..lab.jobs.store import Store
from ..lab.training.config import Config
from .plan import EXPERIMENTS, Experiment, Scale

ALONE = {"temperature": "temperature", "weight_norm": "weight norm", "training_loss": "training loss, last epoch"}
DERIVED = {
    "brier_mean": ("brier", "Brier score, mean over classes"),
    "confidence": ("max_softmax", "mean confidence, %"),
    "calibration": ("loss", "loss, calibration part"),
    "refinement": ("loss", "loss, refinement part"),
}
"""Metrics computed from those of a record: the metric with the same good direction, and the title."""
IMAGES = {
    "clean": "",
    "shifted": ", corrupted images",
    "after_temperature": " after temperature scaling",
    "shifted_after_temperature": ", corrupted images, after temperature scaling",
}
Span = tuple[float, float]


@lru_cache(maxsize=256)
def runs_of(experiment: Experiment, scale: Scale) -> Mapping[str, Config]:
    """The configs of an experiment by their hashes."""
    return {config_hash(config.as_dict()): config for config in experiment.configs(scale)}


@dataclass(frozen=True)
class Evidence:
    """Records by the hashes of their configs, and the scale of the experiments."""

    records: Mapping[str, Record] = field(default_factory=dict)
    scale: Scale = field(default_factory=Scale)
    _pairs: dict[tuple[str, str, str], MethodPair | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, scale: Scale, *, store: Store | None = None, folder: Path | None = None) -> Evidence:
        """The records of a store and of a folder of bundles that belong to our experiments at this scale."""
        carried = {} if folder is None else read_bundles(folder)
        wanted = {name: run for each in EXPERIMENTS.values() for name, run in runs_of(each, scale).items()}
        records: dict[str, Record] = {}
        for name, config in wanted.items():
            if name in carried:
                records[name] = carried[name]
            elif store is not None and (run := store.get(config.as_dict())).is_finished:
                records[name] = run.record()
        return cls(records, scale)

    def method(self, experiment: Experiment, method: str, *, setting: str | None = None) -> tuple[Record, ...]:
        """The finished runs of a method by seed; in the experiment's usual setting if none is named."""
        base = replace(self.scale.applied(setting or experiment.setting), method=method)
        done = {name: run for name, run in runs_of(experiment, self.scale).items() if name in self.records}
        return tuple(self.records[name] for name, run in done.items() if run == replace(base, seed=run.seed))

    def runs(self, experiment: Experiment) -> tuple[Record, ...]:
        """All finished runs of an experiment."""
        return tuple(self.records[name] for name in runs_of(experiment, self.scale) if name in self.records)

    def pair(
        self, experiment: Experiment, method: str | None = None, *, beside: str | None = None
    ) -> MethodPair | None:
        """A method (default: the second) beside another (default: the first); None with fewer than two pairs."""
        methods = beside or experiment.methods[0], method or experiment.methods[1]
        key = experiment.name, *methods
        if key not in self._pairs:  # its tables take a while
            runs = [run for each in methods for run in self.method(experiment, each)]
            self._pairs[key] = MethodPair.if_enough(runs, *methods)
        return self._pairs[key]

    def done(self, experiment: Experiment) -> tuple[int, int]:
        """How many runs are finished, and how many are planned."""
        hashes = runs_of(experiment, self.scale)
        return sum(name in self.records for name in hashes), len(hashes)

    def write(self, folder: Path, experiments: Iterable[Experiment]) -> list[Path]:
        """Write a bundle for each setting and method of these experiments, with all its finished runs.

        Runs in a bundle that the plan no longer has stay in it.
        """
        written: dict[Path, None] = {}
        for experiment in experiments:
            for setting, method in product(experiment.settings(self.scale), experiment.methods):
                path, runs = bundle_path(folder, setting, method), self.of_setting(setting, method)
                if runs and path not in written:
                    before = read_bundle(path) if path.exists() else []
                    written[write_bundle(path, {run["hash"]: run for run in [*before, *runs]}.values())] = None
        return list(written)

    def settings(self) -> Iterator[str]:
        """The settings of all experiments, each once; in a small try several may be the same."""
        seen: set[Config] = set()
        for setting in (name for each in EXPERIMENTS.values() for name in each.settings(self.scale)):
            if self.scale.applied(setting) not in seen:
                seen.add(self.scale.applied(setting))
                yield setting

    def of_setting(self, setting: str, method: str) -> list[Record]:
        """The finished runs of a method in a setting, of any experiment."""
        shared = [
            each for each in EXPERIMENTS.values() if setting in each.settings(self.scale) and method in each.methods
        ]
        return list(
            {run["hash"]: run for each in shared for run in self.method(each, method, setting=setting)}.values()
        )


def value_of(record: Record, quantity: str) -> float | None:
    """The quantity in one run, as a mean over its image sets; None if the run does not have it.

    A quantity is one of `ALONE`, or images and a metric: clean.ece, severity_3.loss, type_fog.ece, or one of `IMAGES`.

    >>> value_of({"weight_norm": 79.7}, "weight_norm")
    79.7
    >>> value_of({"metrics": {"clean": {}, "fog.1": {"ece": 0.25}, "fog.2": {"ece": 0.75}}}, "type_fog.ece")
    0.5
    """
    images, _, metric = quantity.partition(".")
    values: list[Any] = [_alone(record, quantity)] if quantity in ALONE else list(_of_sets(record, images, metric))
    known = [float(value) for value in values if is_number(value)]
    return fsum(known) / len(known) if known and len(known) == len(values) else None


def values_of(records: tuple[Record, ...], quantity: str) -> list[float]:
    """The quantity in every run; an empty list if any run does not have it."""
    values = [value_of(record, quantity) for record in records]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def title_of(quantity: str) -> str:
    """The name of a quantity in tables.

    >>> title_of("clean.ece"), title_of("severity_3.loss"), title_of("clean.brier_mean")
    ('ECE', 'loss, severity 3', 'Brier score, mean over classes')
    """
    if quantity in ALONE:
        return ALONE[quantity]
    images, _, metric = quantity.partition(".")
    name = DERIVED[metric][1] if metric in DERIVED else TITLES[metric]
    if images.startswith("severity_"):
        return f"{name}, severity {images.removeprefix('severity_')}"
    return f"{name}{IMAGES[images]}"


def convention_of(quantity: str) -> Convention | None:
    """The unit, digits and good direction of a quantity's metric; None where it has none."""
    metric = quantity.rpartition(".")[2]
    return CONVENTIONS.get(DERIVED[metric][0] if metric in DERIVED else metric)


def _alone(record: Record, quantity: str) -> float | None:
    if quantity == "weight_norm":
        return float(record["weight_norm"])
    if quantity == "training_loss":
        return float(record["losses"][-1])
    fitted = record["after_temperature"]
    return None if fitted is None else float(fitted["temperature"])


def _of_sets(record: Record, images: str, metric: str) -> Iterator[Any]:
    """The metric on each of these image sets."""
    part, fitted = images.partition("_")[2], record.get("after_temperature") or {}
    sets: Mapping[str, Metrics]
    if images == "shifted" or images.startswith(("severity_", "type_")):
        place = {"severity_": 2, "type_": 0}.get(images.removesuffix(part))
        names = (name for name in image_sets(record) if place is None or name.rpartition(".")[place] == part)
        sets = {name: record["metrics"][name] for name in names}
    elif images == "shifted_after_temperature":
        sets = fitted.get("shifted") or {}  # older records do not have it
    elif images == "after_temperature":
        sets = {"clean": fitted["metrics"]} if fitted else {}
    else:
        sets = {"clean": record["metrics"]["clean"]}
    for each in sets.values():
        yield _derived(record, each, metric) if metric in DERIVED else each.get(metric)


def _derived(record: Record, metrics: Metrics, metric: str) -> Any:
    value = metrics.get(DERIVED[metric][0])
    if value is None or not is_number(value):
        return None
    if metric in ("calibration", "refinement"):
        best = (record.get("after_temperature_on_test") or {}).get("metrics", {}).get("loss")
        return best if metric == "refinement" or best is None else value - best
    return 100 * value if metric == "confidence" else value / record["evaluated"]["classes"]


def minutes_of(records: Iterable[Record]) -> float:
    """Minutes in which at least one of these runs was active.

    If records do not say when they ended, the sum of the runs' own clocks, which is more for concurrent runs.

    >>> run = {"seconds": {"training": 50.0, "evaluation": 10.0}}
    >>> minutes_of([run, run]), minutes_of([{**run, "ended": 100.0}, {**run, "ended": 130.0}])
    (2.0, 1.5)
    """
    runs = list(records)
    if not all("ended" in run for run in runs):
        return sum(float(sum(run["seconds"].values())) for run in runs) / 60
    spans = [span for run in runs for part in _spans(run).values() for span in part]
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 60


def shares(records: Iterable[Record]) -> list[dict[str, float]]:
    """Seconds of training and of evaluation of each run, with the time of concurrent runs divided among them.

    They add up to the time in which any run was active. A run without an end time keeps its own clock.

    >>> run = {"seconds": {"training": 50.0, "evaluation": 10.0}}
    >>> shares([{**run, "ended": 60.0}, {**run, "ended": 110.0}])
    [{'training': 50.0, 'evaluation': 5.0}, {'training': 45.0, 'evaluation': 10.0}]
    """
    runs = list(records)
    spans = [span for run in runs for part in _spans(run).values() for span in part]
    return [_shares(run, spans) for run in runs]


def with_whole_clocks(records: Iterable[Record]) -> list[Record]:
    """The runs whose clock covers all of their training, not only the part after a checkpoint.

    Runs with stretches do. An older run counts as resumed if it trained for less than a quarter of the longest run with
    the same config.

    >>> runs = [{"config": {"seed": i}, "seconds": {"training": t}} for i, t in enumerate((80.0, 60.0, 4.0, 5.0))]
    >>> runs[3]["stretches"] = [[0.0, 2.0], [10.0, 13.0]]
    >>> [run["config"]["seed"] for run in with_whole_clocks(runs)]
    [0, 1, 3]
    """
    runs, longest = list(records), dict[str, float]()
    for run in runs:
        longest[_setting(run)] = max(longest.get(_setting(run), 0.0), run["seconds"]["training"])
    return [run for run in runs if "stretches" in run or run["seconds"]["training"] >= longest[_setting(run)] / 4]


def _setting(run: Record) -> str:
    return repr({**run["config"], "method": "", "seed": 0})


def _spans(run: Record) -> dict[str, list[Span]]:
    """When it trained and was evaluated, if known; older records have only their end."""
    if "ended" not in run:
        return {}
    end, seconds = float(run["ended"]), run["seconds"]
    evaluated = end - float(seconds["evaluation"])
    training = run.get("stretches", [[evaluated - float(seconds["training"]), evaluated]])
    return {
        "training": [(float(begin), float(stop)) for begin, stop in training],
        "evaluation": [(float(training[-1][1]), end)],
    }


def _shares(run: Record, spans: Sequence[Span]) -> dict[str, float]:
    own = {name: sum(_share(span, spans) for span in part) for name, part in _spans(run).items()}
    return own or {name: float(seconds) for name, seconds in run["seconds"].items()}


def _share(part: Span, spans: Sequence[Span]) -> float:
    begin, end = part
    beside = [span for span in spans if span[0] < end and span[1] > begin]
    marks = sorted({begin, end, *(mark for span in beside for mark in span if begin < mark < end)})
    return sum(
        (after - before) / sum(start <= before and after <= stop for start, stop in beside)
        for before, after in pairwise(marks)
    )
