"""How `orthograd compare` goes about it: plan, train what is missing, test, print and write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..calibration import CONVENTIONS
from ..experiment import Executor, ExperimentError, Grid, InProcess, PackedGPU, ProcessPool, Store, StoreError, execute
from ..experiment.run import run
from ..report.comparison import TITLES, ArmPair, verdict
from ..statistics import ComparisonTable
from ..training import Config
from .comparison_files import write_comparison
from .comparison_page import names_of
from .planning import planned, print_plan
from .progress import Progress

FAILED, INTERRUPTED = 1, 130
Failures = (ValueError, TypeError, OSError, StoreError)
"""What is wrong with what was asked, or with the disk: told in a line, not with a traceback."""


def compared(
    base: Config, arms: tuple[str, str], *, seeds: int, folder: Path, workers: int | None, dry_run: bool
) -> int:
    """Do all that the command does; its exit code."""
    console = Console()
    grid, store = planned(base, seeds, arms), Store(folder / "runs")
    if dry_run:
        print_plan(console, grid, store, workers)
        return 0
    try:
        records = _executed(console, grid, store, _executor(base, workers))
    except KeyboardInterrupt:
        print("Stopped. Nothing is lost: the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except ExperimentError as error:
        print(f"{error}\nThe same command tries these again.", file=sys.stderr)
        return FAILED
    _print_results(console, ArmPair.of(records, baseline=arms[0], candidate=arms[1]), folder)
    return 0


def _print_results(console: Console, pair: ArmPair, folder: Path) -> None:
    names = names_of(pair)
    for title, table in pair.tables.items():
        console.print(_table(title, table, names))
    written = write_comparison(pair, names, folder)
    console.print(verdict(pair.tables["clean"], baseline=names[0], candidate=names[1]))
    console.print(
        f"The page: {written[0]}\nAlso written: {', '.join(path.name for path in written[1:])}", soft_wrap=True
    )


def _executor(base: Config, workers: int | None) -> Executor:
    if base.device == "cuda":
        return PackedGPU(workers)
    return InProcess() if workers == 1 else ProcessPool(workers)


def _executed(console: Console, grid: Grid, store: Store, executor: Executor) -> list[dict[str, Any]]:
    plan = grid.plan(store)
    done = f", {len(plan.finished)} of them done" if plan.finished else ""
    console.print(f"{len(grid)} runs{done}, in {store.folder}", soft_wrap=True)
    with Progress(console, grid) as progress:
        return execute(grid, run, store, executor=executor, on_event=progress.notice)


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
