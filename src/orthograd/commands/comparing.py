"""How `orthograd compare` goes about it: plan, train what is missing, test, print and write."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..calibration import CONVENTIONS
from ..experiment import Executor, ExperimentError, Grid, InProcess, ProcessPool, Store, execute
from ..experiment.run import run
from ..report.comparison import TITLES, ArmPair, verdict
from ..statistics import ComparisonTable
from ..training import ARMS, Config, Task, train
from .comparison_files import write_comparison
from .progress import Progress

FAILED, INTERRUPTED = 1, 130


def compared(
    base: Config, arms: tuple[str, str], *, seeds: int, folder: Path, workers: int | None, dry_run: bool
) -> int:
    """Do all that the command does; its exit code."""
    console = Console()
    grid, store = _grid(base, seeds, arms), Store(folder / "runs")
    if dry_run:
        _print_plan(console, grid, store, workers)
        return 0
    try:
        records = _executed(console, grid, store, InProcess() if workers == 1 else ProcessPool(workers))
    except KeyboardInterrupt:
        print("Stopped. Nothing is lost: the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except ExperimentError as error:
        print(f"{error}\nThe same command tries these again.", file=sys.stderr)
        return FAILED
    _print_results(console, ArmPair.of(records, baseline=arms[0], candidate=arms[1]), store, folder)
    return 0


def _print_results(console: Console, pair: ArmPair, store: Store, folder: Path) -> None:
    names = ARMS[pair.arms[0]].title, ARMS[pair.arms[1]].title
    tables = {"clean": pair.clean(), "shifted": pair.shifted()}
    scaled = pair.after_temperature()
    if scaled is not None:
        tables["temperature-scaled"] = scaled
    for title, table in tables.items():
        console.print(_table(title, table, names))
    written = write_comparison(pair, tables, names, store, folder)
    console.print(verdict(tables["clean"], baseline=names[0], candidate=names[1]))
    console.print(f"Written: {', '.join(str(path) for path in written)}", soft_wrap=True)


def _grid(base: Config, seeds: int, arms: tuple[str, str]) -> Grid:
    """Seed by seed, so that pairs are complete early; what cannot be trained is refused before anything starts."""
    if arms[0] == arms[1]:
        raise ValueError(f"expected two different arms, got {arms[0]} twice")
    configs = [dataclasses.replace(base, arm=arm, seed=seed) for seed in range(seeds) for arm in arms]
    for config in configs[:2]:
        train(dataclasses.replace(config, epochs=1), Task.of(config))
    return Grid(config.as_dict() for config in configs)


def _executed(console: Console, grid: Grid, store: Store, executor: Executor) -> list[dict[str, Any]]:
    plan = grid.plan(store)
    done = f", {len(plan.finished)} of them done" if plan.finished else ""
    console.print(f"{len(grid)} runs{done}, in {store.folder}", soft_wrap=True)
    with Progress(console, grid) as progress:
        return execute(grid, run, store, executor=executor, on_event=progress.notice)


def _print_plan(console: Console, grid: Grid, store: Store, workers: int | None) -> None:
    plan = grid.plan(store)
    config = Config.from_dict(grid[0])
    task = Task.of(config)
    started = time.perf_counter()
    train(dataclasses.replace(config, epochs=3), task)
    seconds = (time.perf_counter() - started) / 3 * config.epochs
    processes = ProcessPool(workers).workers
    left = len(plan.missing) + len(plan.resumable)
    console.print(
        f"{len(grid)} runs: {len(plan.finished)} finished, {len(plan.resumable)} begun, {len(plan.missing)} to do.\n"
        f"About {seconds:.0f} s a run, {seconds * left / processes:.0f} s in all with {processes} processes."
    )


def _table(title: str, table: ComparisonTable, names: tuple[str, str]) -> Table:
    """What fits a terminal: means, effect, corrected p and verdict; the files have the rest."""
    shown = Table("metric", *names, "d", "p, Holm", "verdict", title=f"{title} test images", title_justify="left")
    inks = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "dim"}
    for row in table:
        metric = str(row.metric)
        digits = CONVENTIONS[metric].digits
        means = [f"{arm.mean:.{digits}f}" for arm in (row.baseline, row.candidate)]
        effect = f"{row.cohens_d.value:+.2f}"
        shown.add_row(
            TITLES[metric], *means, effect, f"{row.corrected_p:.2g}", row.verdict, style=inks.get(row.verdict, "")
        )
    return shown
