"""How `orthograd compare` goes about it: plan, train what is missing, test, print and write."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..experiment import (
    Event,
    Executor,
    ExperimentError,
    Grid,
    InProcess,
    PackedGPU,
    ProcessPool,
    RayCluster,
    Store,
    StoreError,
    execute,
)
from ..experiment.problems import naming
from ..experiment.run import run
from ..fingerprints import Fingerprint
from ..training import Config
from .places import refuse_ignored
from .planning import planned, print_plan
from .progress import Progress

FAILED, INTERRUPTED = 1, 130
Failures = (ValueError, TypeError, OSError, ImportError, StoreError)
"""What is wrong with what was asked, or with the disk: told in a line, not with a traceback."""


@dataclass(frozen=True)
class Place:
    """Who does the runs: this machine, or a Ray cluster; and how many at once, None for as many as suit."""

    executor: str = "local"
    workers: int | None = None
    address: str | None = None
    gpus_per_run: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in ("local", "ray"):
            raise ValueError(f"expected the executor local or ray, got {self.executor}")
        if self.executor != "ray":
            of_ray = {"--address": self.address is not None, "--gpus-per-run": self.gpus_per_run is not None}
            refuse_ignored(of_ray, "without --executor ray")


def compared(base: Config, arms: tuple[str, str], *, seeds: range, folder: Path, place: Place, dry_run: bool) -> int:
    """Do all that the command does; its exit code."""
    console = Console(markup=False, emoji=False)  # folders are printed as they are named
    require_device(base, place)
    store = Store(folder / "runs")
    grid, start = planned(base, seeds, arms, store)
    if dry_run:
        print_plan(console, grid, store, place.workers, is_here=place.executor == "local")
        return 0
    records: list[dict[str, Any]] = []
    code = exit_code(lambda: records.extend(executed(console, grid, store, executor_for(base, place), start=start)))
    if code == INTERRUPTED:
        return code
    # With scipy: not before the workers have ended, for the memory.
    from ..report.comparison import ArmPair
    from .comparison_results import print_results

    pair = ArmPair.if_enough(finished(grid, store) if code == FAILED else records, *arms)
    if pair is None:
        print("There is no page: fewer than 2 seeds have both their runs.", file=sys.stderr)
    else:
        print_results(console, pair, folder)
    return code


def finished(grid: Grid, store: Store) -> list[dict[str, Any]]:
    """The sound records that there are."""
    found = []
    for config in grid:
        with suppress(StoreError):
            found += [store.get(config).record()] if store.get(config).is_finished else []
    return found


def exit_code(work: Callable[[], int | None]) -> int:
    """Do the work; its exit code, 0 if it has none. Where it was stopped, or runs failed, what to do next is said."""
    try:
        return work() or 0
    except KeyboardInterrupt:
        print("Stopped. Nothing is lost: the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except ExperimentError as error:
        print(f"{error}\nThe same command tries these again.", file=sys.stderr)
        return FAILED


def executor_for(base: Config, place: Place) -> Executor:
    """A Ray cluster, one GPU packed with runs, or processes on the cores; one worker is this process itself."""
    if place.executor == "ray":
        return RayCluster(place.address, max_concurrent=place.workers, gpus_per_run=place.gpus_per_run)
    if base.device == "cuda":
        return PackedGPU(place.workers)
    return InProcess() if place.workers == 1 else ProcessPool(place.workers)


def require_device(config: Config, place: Place) -> None:
    """Refuse to begin what this machine cannot do."""
    if config.device == "cuda" and place.executor == "local" and not torch.cuda.is_available():
        raise ValueError("expected a GPU for these runs, got none; --device cpu is for small tries")


def executed(
    console: Console,
    grid: Grid,
    store: Store,
    executor: Executor,
    look: Callable[[], None] = lambda: None,
    start: Fingerprint | None = None,
) -> list[dict[str, Any]]:
    """Say how much there is to do, do it under a progress bar, looking whether to stop; the records.

    Where all runs have to start from the same data and network, workers that find others refuse.
    """
    with naming(store.folder, "be made"):  # once, and not in every run anew
        store.folder.mkdir(parents=True, exist_ok=True)
    plan = grid.plan(store)
    done = f", {len(plan.finished)} of them done" if plan.finished else ""
    console.print(f"{len(grid)} runs{done}, in {store.folder}", soft_wrap=True)
    with Progress(console, grid) as progress:

        def notice(event: Event) -> None:
            progress.notice(event)
            look()

        return execute(grid, partial(run, expected=start), store, executor=executor, on_event=notice)
