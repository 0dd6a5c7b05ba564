"""The steps of `orthograd reproduce`: plan, train the missing runs, write every file from the records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..lab.comparison.plan import trial
from ..lab.jobs.bundles import read_bundles
from ..lab.jobs.files import config_hash
from ..lab.jobs.jobs import ExperimentError, Failure, Grid
from ..lab.jobs.store import Store
from ..lab.training.config import Config
from ..lab.training.task import check_names
from ..paper.cost import Rates, rates, trained_as
from ..paper.document.contents import write_reproduction
from ..paper.evidence import Evidence, minutes_of, runs_of
from ..paper.plan import Experiment, Scale, named, runs_in_order
from .execution import (
    INTERRUPTED,
    Failures,
    Place,
    TimeIsUp,
    executed,
    executor_for,
    exit_code,
    interrupted_after,
    require_device,
)

__all__ = ["INCOMPLETE", "Failures", "Request", "reproduced"]

COMMITTED = Path("docs/results/reproduction")
"""The folder of records in a checkout."""
INCOMPLETE = 3
"""The exit code when --minutes ended before all runs were done."""


@dataclass(frozen=True)
class Request:
    """A request: experiments or groups, their scale, and the folders."""

    names: tuple[str, ...]
    scale: Scale
    folder: Path
    export: Path | None = None
    place: Place = field(default_factory=Place)
    minutes: float | None = None
    is_rebuild: bool = False

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments of these names."""
        return named(*self.names)

    @property
    def store(self) -> Store:
        """The store of the runs."""
        return Store(self.folder / "runs")

    def evidence(self) -> Evidence:
        """The records in the store and in the export folder."""
        return Evidence.of(self.scale, store=self.store, folder=self.export)

    def missing(self, evidence: Evidence) -> list[list[Config]]:
        """The runs to do, by experiment and then by precision.

        Consecutive experiments that train the same network form one group, so that the GPU stays full between them.
        """
        planned = runs_in_order(self.experiments, self.scale).values()
        runs = chain.from_iterable(sorted(runs, key=attrgetter("precision")) for runs in planned)
        missing = (run for run in runs if config_hash(run.as_dict()) not in evidence.records)
        return [list(group) for _, group in groupby(missing, attrgetter("network"))]


def reproduced(request: Request, *, dry_run: bool) -> int:
    """Run the command; its exit code."""
    console = Console(markup=False, emoji=False)  # folder names are printed verbatim
    if request.export is not None and replace(request.scale, seeds=None) != Scale():
        chosen = (request.scale.device, request.scale.precision)
        departures = dict.fromkeys([*request.scale.departures, *(f"{name} for all" for name in chosen if name)])
        raise ValueError(f"expected the paper's setting, on a GPU, for records to export, got {', '.join(departures)}")
    if request.scale.has_one_precision and "precision" in request.names:
        given = "a CPU" if request.scale.device == "cpu" else f"--precision {request.scale.precision}"
        raise ValueError(f"expected a GPU and no --precision where float32, tf32 and bf16 are compared, got {given}")
    if request.export is not None and request.export.exists() and not request.export.is_dir():
        raise ValueError(f"{request.export}: expected a folder of records, got a file")
    evidence = request.evidence()
    if dry_run:
        for group in request.missing(evidence):
            check_names(group[0])
        print_reproduction_plan(console, request.experiments, evidence)
        return 0
    if request.scale.departures:
        console.print(f"Not the paper's setting: {', '.join(request.scale.departures)}.", soft_wrap=True)
    if request.is_rebuild and not evidence.records:
        places = " or ".join(str(place) for place in (request.store.folder, request.export) if place is not None)
        raise ValueError(f"expected records of finished runs in {places}, got none")
    missing = request.missing(evidence)
    runs = sum(map(len, runs_in_order(request.experiments, request.scale).values()))
    console.print(f"{', '.join(request.names)}: {runs} runs, {runs - sum(map(len, missing))} of them done.")
    if missing:
        left = list(chain.from_iterable(missing))
        speed = speed_of(left, evidence)
        console.print(f"GPU time of the others: {time_of(left, speed)} ({speed.source}).", soft_wrap=True)
    code = 0 if request.is_rebuild else _trained(console, request, missing)
    if code != INTERRUPTED:
        _write(console, request)
    return code


def _trained(console: Console, request: Request, groups: Sequence[list[Config]]) -> int:
    """Train the missing runs, after checking that all of them can be trained; the exit code."""
    for group in groups:
        require_device(group[0], request.place)
        trial(group[0])

    def train() -> int:
        failures: list[Failure] = []
        code = 0
        try:
            with interrupted_after(request.minutes) as look:
                for group in groups:
                    grid = Grid(config.as_dict() for config in group)
                    try:
                        executed(console, grid, request.store, executor_for(group[0], request.place), look)
                    except ExperimentError as error:  # the other groups still run
                        failures += error.failures
        except TimeIsUp:
            print("The time limit was reached. Run the same command again to resume.", file=sys.stderr)
            code = INCOMPLETE
        if failures:
            raise ExperimentError(failures, sum(map(len, groups)))
        return code

    return exit_code(train)


def _write(console: Console, request: Request) -> None:
    if request.export is not None:
        whole = Evidence.of(Scale(), store=request.store, folder=request.export)
        for path in whole.write(request.export, request.experiments):
            console.print(f"Records: {path}", soft_wrap=True)
    written = write_reproduction(request.evidence(), request.experiments, request.folder, records=request.export)
    console.print(f"Report: {written[0]}", soft_wrap=True)
    console.print(f"Also written: {', '.join(path.name for path in written[1:])}", soft_wrap=True)


def print_reproduction_plan(console: Console, experiments: Sequence[Experiment], evidence: Evidence) -> None:
    """Print a row per experiment; runs that an earlier row counts are not counted again."""
    speed, seen = speed_of([run for each in experiments for run in each.configs(evidence.scale)], evidence), set[str]()
    table = Table("experiment", "runs", "done", "shared with the above", "to do", "GPU time", title="Plan")
    whole: list[Config] = []
    for experiment in experiments:
        configs = runs_of(experiment, evidence.scale)
        left = [config for name, config in configs.items() if name not in evidence.records and name not in seen]
        shared = sum(name in seen for name in configs)
        done = sum(name in evidence.records and name not in seen for name in configs)
        cells = [len(configs), done, shared, len(left)]
        table.add_row(experiment.name, *map(str, cells), time_of(left, speed))
        whole += left
        seen.update(configs)
    console.print(table)
    console.print(f"{len(whole)} runs to do. GPU time: {time_of(whole, speed)} ({speed.source}).", soft_wrap=True)
    if evidence.records:
        spent = minutes_of(evidence.records.values())
        console.print(f"The {len(evidence.records)} finished runs took {spent:.1f} minutes.", soft_wrap=True)
    if not COMMITTED.is_dir():
        console.print(f"A checkout that has {COMMITTED} gives better estimates.", soft_wrap=True)
    if evidence.scale.departures:
        console.print(f"Not the paper's setting: {', '.join(evidence.scale.departures)}.", soft_wrap=True)


def speed_of(configs: Sequence[Config], evidence: Evidence) -> Rates:
    """Rates by the records at hand; if these lack a network, also by a checkout's records."""
    records = evidence.records
    known = {trained_as(Config.from_dict(record["config"])) for record in records.values()}
    if COMMITTED.is_dir() and not {trained_as(config) for config in configs} <= known:
        records = {**read_bundles(COMMITTED), **records}
    return rates(records.values())


def time_of(configs: Sequence[Config], speed: Rates) -> str:
    """The minutes that runs keep a GPU busy, with "?" for runs of unknown time.

    >>> time_of([], Rates({}, {}, ""))
    'none'
    """
    known = [seconds for config in configs if (seconds := speed.seconds(config)) is not None]
    unknown = len(configs) - len(known)
    text = f"{sum(known) / 60:.1f} minutes" if known else "" if unknown else "none"
    return f"{text} + ? for {unknown} runs".removeprefix(" + ") if unknown else text
