"""The command ``orthograd compare``: train a network with two methods over seeds, and compare them."""

from __future__ import annotations

import dataclasses
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeAlias

import typer

from ..imports import require
from ..lab.training.config import CHOICES, RECIPES, Config, recipe
from ..lab.training.methods import METHODS
from .options import WHERE, Address, Executor, GPUsPerRun, Workers, refuse_ignored

if TYPE_CHECKING:
    from rich.console import Console

    from ..lab.jobs.jobs import Grid
    from ..lab.jobs.store import Store
    from .execution import Place

# typer reads annotations at run time, so on Python 3.10 they must be Optional[…].
Whole: TypeAlias = Optional[int]  # noqa: UP045
Number: TypeAlias = Optional[float]  # noqa: UP045
Text: TypeAlias = Optional[str]  # noqa: UP045
MOST_SEEDS = 10_000
"""Torch uses 32 bits of a seed, so higher seeds would repeat runs."""
TRAINING = "Training (default: the recipe of the data set)"


def compare(
    seeds: Annotated[
        int, typer.Option(min=2, max=MOST_SEEDS, help="Number of seeds per method. Runs that share a seed are paired.")
    ] = 10,
    first_seed: Annotated[int, typer.Option(min=0, max=2**32 - 1 - MOST_SEEDS, help="First seed.")] = 0,
    candidate: Annotated[
        str, typer.Option(help=f"Method to compare with the baseline: {', '.join(METHODS)}.")
    ] = "orthograd",
    baseline: Annotated[
        str, typer.Option(help="Method to compare with. baseline is the plain optimizer.")
    ] = "baseline",
    dataset: Annotated[
        str, typer.Option(help=f"Data set: {', '.join(RECIPES)}, or package.module:function.")
    ] = "digits",
    model: Annotated[
        Text,
        typer.Option(
            rich_help_panel=TRAINING,
            help="Network: cnn, cnn_batchnorm, mlp, mlp_no_bias, resnet18, resnet50, wide_resnet28_10, or "
            "package.module:function.",
        ),
    ] = None,
    labels_per_class: Annotated[
        Whole, typer.Option(rich_help_panel=TRAINING, min=0, help="Training images per class; 0 for all.")
    ] = None,
    epochs: Annotated[Whole, typer.Option(rich_help_panel=TRAINING, min=1, help="Training epochs.")] = None,
    batch_size: Annotated[Whole, typer.Option(rich_help_panel=TRAINING, min=1, help="Images per step.")] = None,
    optimizer: Annotated[Text, typer.Option(rich_help_panel=TRAINING, help="Optimizer: sgd or adamw.")] = None,
    learning_rate: Annotated[Number, typer.Option(rich_help_panel=TRAINING, help="Initial learning rate.")] = None,
    schedule: Annotated[
        Text, typer.Option(rich_help_panel=TRAINING, help="Learning-rate schedule: constant or cosine.")
    ] = None,
    momentum: Annotated[Number, typer.Option(rich_help_panel=TRAINING, help="Momentum of sgd.")] = None,
    weight_decay: Annotated[Number, typer.Option(rich_help_panel=TRAINING, help="Weight decay.")] = None,
    augmentation: Annotated[
        Text, typer.Option(rich_help_panel=TRAINING, help="Data augmentation: none or crop_flip.")
    ] = None,
    last_batch: Annotated[
        Text,
        typer.Option(
            rich_help_panel=TRAINING,
            help="The last batch of an epoch if it is smaller than the others: keep or drop. Variants for a study: "
            "first, weighted, running_statistics.",
        ),
    ] = None,
    corruptions: Annotated[
        bool, typer.Option("--corruptions", help="Evaluate on CIFAR-10-C: 15 corruptions at 5 severities.")
    ] = False,
    device: Annotated[str, typer.Option(rich_help_panel=WHERE, help="cpu, or cuda for concurrent runs on one GPU.")] = (
        "cpu"
    ),
    precision: Annotated[
        Text,
        typer.Option(
            rich_help_panel=WHERE, help=f"GPU precision: {', '.join(CHOICES['precision'])}. \\[default: tf32]"
        ),
    ] = None,
    workers: Workers = None,
    executor: Executor = "local",
    address: Address = None,
    gpus_per_run: GPUsPerRun = None,
    out: Annotated[
        Path, typer.Option(rich_help_panel=WHERE, help="Folder for the report, the tables and the runs.")
    ] = Path("comparison"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs to do and the estimated time; train nothing.")
    ] = False,
) -> None:
    """Compare ⊥Grad with the plain optimizer over seeds: train, test, write a report.

    Both runs of a seed share their training images, initial weights and batch
    order, so they are paired. Each is evaluated on clean and on corrupted test
    images, before and after temperature scaling. The report says whether
    calibration and accuracy are better, worse, equivalent or inconclusive.
    Interrupt with Ctrl-C at any time; the same command resumes.

    Examples:

    orthograd compare
    orthograd compare --model cnn_batchnorm --out batchnorm
    orthograd compare --candidate label_smoothing
    orthograd compare --first-seed 10 --out again
    orthograd compare --model mypackage.nets:small --dataset mypackage.data:mine
    orthograd compare --dataset cifar10 --seeds 20 --device cuda --corruptions
    orthograd compare --executor ray --address auto --seeds 100
    """
    require("matplotlib", "PIL", "numpy", "safetensors", "scipy")
    if executor == "ray":
        require("ray", extra="ray")
    given = {
        "model": model,
        "labels_per_class": labels_per_class,
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "augmentation": augmentation,
        "last_batch": last_batch,
        "device": device,
        "precision": precision or ("tf32" if device == "cuda" else None),
        "shifts": "cifar10c" if corruptions else None,
    }
    from .execution import Failures, Place  # imports torch, which --help does not need

    try:
        base = config_of(dataset, given)
        place = Place(executor, workers, address=address, gpus_per_run=gpus_per_run)
        counted = range(first_seed, first_seed + seeds)
        code = compared(base, (baseline, candidate), seeds=counted, folder=out, place=place, dry_run=dry_run)
    except Failures as error:
        typer.echo(f"orthograd compare: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def config_of(dataset: str, given: dict[str, Any]) -> Config:
    """The recipe of the data set with the given settings; ValueError for a setting that would be ignored."""
    config = dataclasses.replace(recipe(dataset), **{name: value for name, value in given.items() if value is not None})
    if config.optimizer != "sgd":
        refuse_ignored({"--momentum": given["momentum"] is not None}, f"with the optimizer {config.optimizer}")
    return config


def compared(base: Config, methods: tuple[str, str], *, seeds: range, folder: Path, place: Place, dry_run: bool) -> int:
    """Plan, train the missing runs, test, print and write; the exit code."""
    from rich.console import Console

    from ..lab.comparison.plan import planned
    from ..lab.jobs.store import Store
    from .execution import FAILED, INTERRUPTED, executed, executor_for, exit_code, require_device

    console = Console(markup=False, emoji=False)  # folder names are printed verbatim
    require_device(base, place)
    store = Store(folder / "runs")
    grid, start = planned(base, seeds, methods, store)
    if dry_run:
        return exit_code(lambda: print_plan(console, grid, store, place))
    records: list[dict[str, Any]] = []
    code = exit_code(lambda: records.extend(executed(console, grid, store, executor_for(base, place), start=start)))
    if code == INTERRUPTED:
        return code
    # These import scipy: after the workers have ended, to save memory.
    from ..lab.comparison.output import print_results
    from ..lab.comparison.pair import MethodPair

    pair = MethodPair.if_enough(finished(grid, store) if code == FAILED else records, *methods)
    if pair is None:
        print("No report: fewer than 2 seeds have both runs.", file=sys.stderr)
    else:
        if apart := other_settings(base, methods, folder):
            console.print(f"This replaces the earlier report, of other {', '.join(apart)}; its runs are kept.")
        print_results(console, pair, folder)
    return code


def other_settings(base: Config, methods: tuple[str, str], folder: Path) -> list[str]:
    """The settings of the report in this folder that differ from these; none where there is no report."""
    from ..lab.files import FileError
    from ..lab.jobs.files import read_object

    with suppress(FileError):
        report = read_object(folder / "comparison.json")
        before = {**report.get("config", {}), "methods": report.get("methods")}
        now = {**base.as_dict(), "methods": [*methods]}
        apart = [name for name in before | now if before.get(name) != now.get(name)]
        return [name.replace("_", " ") for name in apart if name not in ("method", "seed")]
    return []


def finished(grid: Grid, store: Store) -> list[dict[str, Any]]:
    """The records of all finished runs that can be read."""
    from ..lab.files import FileError

    records = []
    for config in grid:
        with suppress(FileError):
            records += [store.get(config).record()] if store.get(config).is_finished else []
    return records


def print_plan(console: Console, grid: Grid, store: Store, place: Place) -> None:
    """Print how many runs are finished and to do, and the estimated time."""
    from ..lab.comparison.plan import seconds_on_cores, seconds_per_run
    from ..lab.comparison.records import duration
    from ..lab.jobs.processes import ProcessPool
    from .execution import executor_for

    started = time.process_time()  # of this process, with its imports
    plan, config = grid.plan(store), Config.from_dict(grid[0])
    left = len(plan.missing) + len(plan.resumable)
    console.print(
        f"{len(grid)} runs: {len(plan.finished)} finished, {len(plan.resumable)} begun, {len(plan.missing)} to do."
    )
    if not left:
        return
    if config.device == "cuda" or place.executor != "local":
        seconds = seconds_per_run(config)
        each, whole = duration(seconds), duration(seconds * left)
        console.print(f"Training takes about {each} per run alone, {whole} in all; concurrent runs take less.")
        return
    processes = ProcessPool(place.workers).workers
    at_once = min(processes, left)
    seconds, start = seconds_on_cores(grid, executor_for(config, place), at_once)
    whole = duration(started + start + seconds * -(-left // at_once))
    with_them = f"{whole} in all with {processes} process{'es' * (processes > 1)}"
    console.print(
        f"At least {duration(seconds)} per run, {with_them}, if the cores stay as busy as now. "
        "This covers the start, training, checkpoints and evaluation, but not the report."
    )
