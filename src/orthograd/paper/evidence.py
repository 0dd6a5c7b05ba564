"""What there is to go by: the records of the runs that experiments consist of, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from ..lab.comparison.pair import ArmPair
from ..lab.jobs.bundles import bundle_path, read_bundle, read_bundles, write_bundle
from ..lab.jobs.files import config_hash
from ..lab.jobs.store import Store
from ..lab.training.config import Config
from .experiments import EXPERIMENTS, Experiment
from .settings import Scale

Record = Mapping[str, Any]


@lru_cache(maxsize=256)
def runs_of(experiment: Experiment, scale: Scale) -> Mapping[str, Config]:
    """The configs of an experiment by their hashes."""
    return {config_hash(config.as_dict()): config for config in experiment.configs(scale)}


@dataclass(frozen=True)
class Evidence:
    """Records by the hashes of their configs, and the scale at which experiments were run."""

    records: Mapping[str, Record] = field(default_factory=dict)
    scale: Scale = field(default_factory=Scale)
    _pairs: dict[tuple[str, str, str], ArmPair | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, scale: Scale, *, store: Store | None = None, folder: Path | None = None) -> Evidence:
        """The records of a store and of a folder of bundles that belong to our experiments at this scale."""
        carried = {} if folder is None else read_bundles(folder)
        wanted = {name: run for each in EXPERIMENTS.values() for name, run in runs_of(each, scale).items()}
        found: dict[str, Record] = {}
        for name, config in wanted.items():
            if name in carried:
                found[name] = carried[name]
            elif store is not None and (run := store.get(config.as_dict())).is_finished:
                found[name] = run.record()
        return cls(found, scale)

    def arm(self, experiment: Experiment, arm: str, *, setting: str | None = None) -> tuple[Record, ...]:
        """The runs of an arm that are there, by seed; in the experiment's usual setting if no other is named."""
        base = replace(self.scale.applied(setting or experiment.setting), arm=arm)
        found = {name: run for name, run in runs_of(experiment, self.scale).items() if name in self.records}
        return tuple(self.records[name] for name, run in found.items() if run == replace(base, seed=run.seed))

    def runs(self, experiment: Experiment) -> tuple[Record, ...]:
        """All of its runs that are there."""
        return tuple(self.records[name] for name in runs_of(experiment, self.scale) if name in self.records)

    def pair(self, experiment: Experiment, arm: str | None = None, *, beside: str | None = None) -> ArmPair | None:
        """An arm (the second if not said) beside another (the first); None with fewer than two seeds of both."""
        arms = beside or experiment.arms[0], arm or experiment.arms[1]
        key = experiment.name, *arms
        if key not in self._pairs:  # its tables take a while
            runs = [run for each in arms for run in self.arm(experiment, each)]
            self._pairs[key] = ArmPair.if_enough(runs, *arms)
        return self._pairs[key]

    def done(self, experiment: Experiment) -> tuple[int, int]:
        """How many runs are there, and how many there should be."""
        hashes = runs_of(experiment, self.scale)
        return sum(name in self.records for name in hashes), len(hashes)

    def write(self, folder: Path, experiments: Iterable[Experiment]) -> list[Path]:
        """Write a bundle for each setting and arm of these experiments, with all runs of it that are there.

        Runs that the bundle has and the plan no longer asks for stay in it.
        """
        written: dict[Path, None] = {}
        for experiment in experiments:
            for setting, arm in product(experiment.settings(self.scale), experiment.arms):
                path, runs = bundle_path(folder, setting, arm), self.of_setting(setting, arm)
                if runs and path not in written:
                    before = read_bundle(path) if path.exists() else []
                    written[write_bundle(path, {run["hash"]: run for run in [*before, *runs]}.values())] = None
        return list(written)

    def settings(self) -> Iterator[str]:
        """Those of all experiments, each once; in a small try several may come to the same."""
        seen: set[Config] = set()
        for setting in (name for each in EXPERIMENTS.values() for name in each.settings(self.scale)):
            if self.scale.applied(setting) not in seen:
                seen.add(self.scale.applied(setting))
                yield setting

    def of_setting(self, setting: str, arm: str) -> list[Record]:
        """The runs of an arm in a setting that any experiment has."""
        shared = [each for each in EXPERIMENTS.values() if setting in each.settings(self.scale) and arm in each.arms]
        return list({run["hash"]: run for each in shared for run in self.arm(each, arm, setting=setting)}.values())
