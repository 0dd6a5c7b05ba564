"""How `orthograd compare` goes about it: plan, train what is missing, test, print and write."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..lab.comparison.records import duration
from ..lab.jobs.cluster.executor import RayCluster
from ..lab.jobs.executors import Executor, InProcess, execute
from ..lab.jobs.files import StoreError, naming, read_object
from ..lab.jobs.fingerprints import SAME_EACH_TIME, Fingerprint, difference, fingerprint_of
from ..lab.jobs.grid import Grid
from ..lab.jobs.jobs import Event, ExperimentError
from ..lab.jobs.processes import ProcessPool
from ..lab.jobs.record import CONFIG
from ..lab.jobs.store import RunFolder, Store
from ..lab.runs.judgement import check_shifts
from ..lab.runs.packed import PackedGPU
from ..lab.runs.run import run
from ..lab.runs.training import train
from ..lab.training.arms import arm_named
from ..lab.training.config import Config
from ..lab.training.fingerprint import fingerprint
from ..lab.training.task import Task, initial_model
from .options import refuse_ignored
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
    from ..lab.comparison.output import print_results
    from ..lab.comparison.pair import ArmPair

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


TRIAL = 8  # images
TIMED = 4  # batches


def planned(base: Config, seeds: range, arms: tuple[str, str], store: Store) -> tuple[Grid, Fingerprint]:
    """Seed by seed, so that pairs are complete early; and what their data and network are, each run's the same.

    What cannot be trained, or not beside the runs that are there, is refused before anything starts.
    """
    if arms[0] == arms[1]:
        raise ValueError(f"expected two different arms, got {arms[0]} twice")
    configs = [dataclasses.replace(base, arm=arm, seed=seed) for seed in seeds for arm in arms]
    now, again = (trial(config) for config in configs[:2])
    if words := difference(now, again):
        raise ValueError(
            f"expected {base.dataset} to give the same images and labels each time, for runs that share a seed are "
            f"pairs; got {words}: {SAME_EACH_TIME}"
        )
    _require_same_as_before(configs[0], store, now)
    return Grid(config.as_dict() for config in configs), now


def trial(config: Config) -> Fingerprint:
    """Refuse what cannot be trained, before anything is; what it would be."""
    arm_named(config.arm)
    task = Task.of(config)
    model, images = initial_model(config, task.dataset), task.dataset.normalised(task.images[:TRIAL])
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.UninitializedParameter):
            expected = f"expected {config.model} to have parameters whose shapes are known"
            raise ValueError(f"{expected}, got {name} without: use Linear and not LazyLinear")
    if not _logits(config, model.train(), images, task.dataset.classes).requires_grad:
        raise ValueError(f"expected {config.model} to have parameters that learn, got none that its logits depend on")
    with torch.no_grad():
        _logits(config, model.eval(), images, task.dataset.classes)
    check_shifts(config, task.dataset)
    return fingerprint(config, task.dataset)


def _logits(config: Config, model: torch.nn.Module, images: torch.Tensor, classes: int) -> torch.Tensor:
    """Those of a trial, once they have the right shape."""
    expected, when = (len(images), classes), "in training" if model.training else "in evaluation"
    try:
        logits = model(images.clone())
    except RuntimeError as error:
        raise ValueError(f"expected {config.model} to take images {tuple(images.shape)}, got {error}") from error
    if not isinstance(logits, torch.Tensor) or logits.shape != expected:
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"expected {config.model} to give logits {expected} {when}, got {found}")
    return logits


def _require_same_as_before(config: Config, store: Store, now: Fingerprint) -> None:
    """Refuse where runs that share all but arm and seed, finished or begun, have another network or other data."""
    shared = _shared(config.as_dict())
    for path in sorted(store.folder.glob(f"*/{CONFIG}")):
        found: Fingerprint = {}
        with suppress(StoreError):  # the plan names those that are not sound
            stored = read_object(path)
            found = _known(store.get(stored)) if _shared(stored) == shared else {}
        if words := difference(found, now):
            raise ValueError(
                f"{path.parent}: expected a run of {config.model} on {config.dataset} as they are now, "
                f"got {words} now. Nothing was changed. For the code as it is now give another --out; to go on here, "
                f"make the code what it was. If it is unchanged, it gives something else each time: {SAME_EACH_TIME}"
            )


def _shared(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"arm": None, "seed": None}


def _known(run: RunFolder) -> Fingerprint:
    """Of a run that is finished or begun, what was noted of its network and data."""
    if run.is_finished:
        return fingerprint_of(run.record())
    found: Fingerprint = (run.load_checkpoint() or ({}, {}))[1].get("fingerprint", {})
    return found


def print_plan(console: Console, grid: Grid, store: Store, workers: int | None, *, is_here: bool) -> None:
    """What is done, what is left, and about how long that takes."""
    plan, config = grid.plan(store), Config.from_dict(grid[0])
    seconds = _seconds(config)
    left = len(plan.missing) + len(plan.resumable)
    console.print(
        f"{len(grid)} runs: {len(plan.finished)} finished, {len(plan.resumable)} begun, {len(plan.missing)} to do."
    )
    if config.device == "cuda" or not is_here:
        whole = duration(seconds * left)
        console.print(f"About {duration(seconds)} a run alone, {whole} in all; several at once take less.")
        return
    processes = ProcessPool(workers).workers
    with_them = f"{duration(seconds * left / processes)} in all with {processes} process{'es' * (processes > 1)}"
    console.print(f"About {duration(seconds)} a run, {with_them}.")


def _seconds(config: Config) -> float:
    """For all epochs, from a few batches, once warm."""
    whole = Task.of(config)
    task = _first(whole, TIMED * config.batch_size)
    train(dataclasses.replace(config, epochs=1), task)
    started = time.perf_counter()
    train(dataclasses.replace(config, epochs=2), task)
    return (time.perf_counter() - started) / 2 * config.epochs * len(whole.labels) / len(task.labels)


def _first(task: Task, count: int) -> Task:
    return dataclasses.replace(task, images=task.images[:count], labels=task.labels[:count])
