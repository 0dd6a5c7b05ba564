"""What a comparison consists of, whether it can be done, and how long it will take."""

from __future__ import annotations

import dataclasses
import time

import torch
from rich.console import Console

from ..experiment import Grid, ProcessPool, Store
from ..report.values import duration
from ..training import Config, Task, initial_model, train
from ..training.arms import arm_named
from ..training.judgement import check_shifts

TRIAL = 8  # images
TIMED = 4  # batches


def planned(base: Config, seeds: range, arms: tuple[str, str]) -> Grid:
    """Seed by seed, so that pairs are complete early; what cannot be trained is refused before anything starts."""
    if arms[0] == arms[1]:
        raise ValueError(f"expected two different arms, got {arms[0]} twice")
    configs = [dataclasses.replace(base, arm=arm, seed=seed) for seed in seeds for arm in arms]
    for config in configs[:2]:
        trial(config)
    return Grid(config.as_dict() for config in configs)


@torch.no_grad()
def trial(config: Config) -> None:
    """Refuse what cannot be trained, before anything is."""
    arm_named(config.arm)
    task = Task.of(config)
    model, images = initial_model(config, task.dataset), task.dataset.normalised(task.images[:TRIAL])
    expected = len(images), task.dataset.classes
    try:
        logits = model(images)
    except RuntimeError as error:
        raise ValueError(f"expected {config.model} to take images {tuple(images.shape)}, got {error}") from error
    if not isinstance(logits, torch.Tensor) or logits.shape != expected:
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"expected {config.model} to give logits {expected}, got {found}")
    check_shifts(config, task.dataset)


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
