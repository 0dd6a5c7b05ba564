"""The command ``orthograd compare``: the same networks trained with and without ⊥Grad, and a verdict."""

from __future__ import annotations

import dataclasses
import sys
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
"""Torch takes 32 bits of a seed, so that higher ones would give the same runs once more."""
TRAINING = "Training (where not given: the recipe of the data set)"


def compare(
    seeds: Annotated[
        int, typer.Option(min=2, max=MOST_SEEDS, help="Seeds of each method; runs that share a seed are pairs.")
    ] = 10,
    first_seed: Annotated[int, typer.Option(min=0, max=2**32 - 1 - MOST_SEEDS, help="First seed.")] = 0,
    candidate: Annotated[
        str, typer.Option(help=f"What to compare with the baseline: {', '.join(METHODS)}.")
    ] = "orthograd",
    baseline: Annotated[str, typer.Option(help="What to compare it with.")] = "baseline",
    dataset: Annotated[str, typer.Option(help=f"{', '.join(RECIPES)}, or package.module:function.")] = "digits",
    model: Annotated[
        Text,
        typer.Option(
            rich_help_panel=TRAINING,
            help="cnn, cnn_batchnorm, mlp, resnet18, resnet50, wide_resnet28_10, or package.module:function.",
        ),
    ] = None,
    labels_per_class: Annotated[
        Whole, typer.Option(rich_help_panel=TRAINING, min=0, help="Training images a class; 0: all.")
    ] = None,
    epochs: Annotated[Whole, typer.Option(rich_help_panel=TRAINING, min=1)] = None,
    batch_size: Annotated[Whole, typer.Option(rich_help_panel=TRAINING, min=1)] = None,
    optimizer: Annotated[Text, typer.Option(rich_help_panel=TRAINING, help="sgd or adamw.")] = None,
    learning_rate: Annotated[Number, typer.Option(rich_help_panel=TRAINING)] = None,
    schedule: Annotated[
        Text, typer.Option(rich_help_panel=TRAINING, help="Of the rate: constant, or cosine, which falls to zero.")
    ] = None,
    momentum: Annotated[Number, typer.Option(rich_help_panel=TRAINING, help="Of sgd.")] = None,
    weight_decay: Annotated[Number, typer.Option(rich_help_panel=TRAINING)] = None,
    augmentation: Annotated[Text, typer.Option(rich_help_panel=TRAINING, help="none or crop_flip.")] = None,
    last_batch: Annotated[
        Text,
        typer.Option(
            rich_help_panel=TRAINING,
            help="The last batch of an epoch where it is smaller than the others: keep or drop; to study what it does: "
            "first, weighted, running_statistics.",
        ),
    ] = None,
    corruptions: Annotated[
        bool, typer.Option("--corruptions", help="Evaluate on the 15 corruptions of CIFAR-10-C, at 5 severities each.")
    ] = False,
    device: Annotated[str, typer.Option(rich_help_panel=WHERE, help="cpu, or cuda: one GPU, several runs at once.")] = (
        "cpu"
    ),
    precision: Annotated[
        Text,
        typer.Option(rich_help_panel=WHERE, help=f"Of a GPU: {', '.join(CHOICES['precision'])}. \\[default: tf32]"),
    ] = None,
    workers: Workers = None,
    executor: Executor = "local",
    address: Address = None,
    gpus_per_run: GPUsPerRun = None,
    out: Annotated[
        Path, typer.Option(rich_help_panel=WHERE, help="Folder for the page, the tables and the runs.")
    ] = Path("comparison"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and how long it takes.")] = False,
) -> None:
    """Train the same network with and without ⊥Grad over seeds, test the difference, and write a page about it.

    Both runs of a seed share their few training images, their initial weights
    and the order of their batches, so they are pairs. Each is evaluated on
    clean test images and on shifted ones at five severities, as it is and
    after temperature scaling. What is finished is never done again: stop with
    Ctrl-C and repeat the command to go on.

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
    from .execution import Failures, Place  # with torch, which help does not wait for

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
    """The recipe of the data set with what was given in its place; what would be ignored is refused."""
    config = dataclasses.replace(recipe(dataset), **{name: value for name, value in given.items() if value is not None})
    if config.optimizer != "sgd":
        refuse_ignored({"--momentum": given["momentum"] is not None}, f"with the optimizer {config.optimizer}")
    return config


def compared(base: Config, methods: tuple[str, str], *, seeds: range, folder: Path, place: Place, dry_run: bool) -> int:
    """Plan, train what is missing, test, print and write; the exit code."""
    from rich.console import Console

    from ..lab.comparison.plan import planned
    from ..lab.jobs.store import Store
    from .execution import FAILED, INTERRUPTED, executed, executor_for, exit_code, require_device

    console = Console(markup=False, emoji=False)  # folders are printed as they are named
    require_device(base, place)
    store = Store(folder / "runs")
    grid, start = planned(base, seeds, methods, store)
    if dry_run:
        print_plan(console, grid, store, place.workers, is_here=place.executor == "local")
        return 0
    records: list[dict[str, Any]] = []
    code = exit_code(lambda: records.extend(executed(console, grid, store, executor_for(base, place), start=start)))
    if code == INTERRUPTED:
        return code
    # With scipy: not before the workers have ended, for the memory.
    from ..lab.comparison.output import print_results
    from ..lab.comparison.pair import MethodPair

    pair = MethodPair.if_enough(finished(grid, store) if code == FAILED else records, *methods)
    if pair is None:
        print("There is no page: fewer than 2 seeds have both their runs.", file=sys.stderr)
    else:
        print_results(console, pair, folder)
    return code


def finished(grid: Grid, store: Store) -> list[dict[str, Any]]:
    """The sound records that there are."""
    from ..lab.files import FileError

    records = []
    for config in grid:
        with suppress(FileError):
            records += [store.get(config).record()] if store.get(config).is_finished else []
    return records


def print_plan(console: Console, grid: Grid, store: Store, workers: int | None, *, is_here: bool) -> None:
    """Print what is done, what is left, and about how long that takes."""
    from ..lab.comparison.plan import seconds_per_run
    from ..lab.comparison.records import duration
    from ..lab.jobs.processes import ProcessPool

    plan, config = grid.plan(store), Config.from_dict(grid[0])
    seconds = seconds_per_run(config)
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
