"""The experiment ``orthograd reproduce grokking``: train the missing rows, then write tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..lab.comparison.records import duration
from ..paper.grokking.page import summary, write_page
from ..paper.grokking.records import missing, read_records, recorded, write_record
from ..paper.grokking.rows import QUICK, QUICK_ON_A_GPU, QUICK_SEEDS, SEEDS, Row, rows_named
from .execution import TimeIsUp, exit_code, interrupted_after
from .reproduction import INCOMPLETE


@dataclass(frozen=True)
class GrokkingRequest:
    """A request: rows (none: all), the number of seeds, the device and the folders."""

    only: tuple[str, ...]
    seeds: int | None
    is_quick: bool
    device: str
    folder: Path
    export: Path | None = None
    minutes: float | None = None
    is_rebuild: bool = False
    is_dry: bool = False

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"expected the device cpu or cuda, got {self.device}")
        for folder in (self.folder, self.export):
            if folder is not None and folder.exists() and not folder.is_dir():
                raise ValueError(f"{folder}: expected a folder, got a file")

    @property
    def rows(self) -> list[Row]:
        """The rows to have."""
        quick = QUICK_ON_A_GPU if self.device == "cuda" and torch.cuda.is_available() else QUICK
        return rows_named(self.only or (quick if self.is_quick else ()))

    @property
    def all_seeds(self) -> list[int]:
        """The seeds, from 0."""
        return list(range(self.seeds or (QUICK_SEEDS if self.is_quick else SEEDS)))

    @property
    def folders(self) -> list[Path]:
        """The folders of records: new ones go into all of them."""
        return [self.folder / "records", *([self.export] if self.export is not None else [])]

    def where(self) -> torch.device:
        """The device. A quick run takes a CPU where there is no GPU."""
        has_gpu = torch.cuda.is_available()
        if self.device == "cuda" and not has_gpu and not self.is_quick:
            raise ValueError("expected a GPU for these runs, got none; use --quick, or --device cpu for single rows")
        return torch.device(self.device if has_gpu else "cpu")


def grokking(request: GrokkingRequest) -> int:
    """Do the rows that are missing, and write the page; the exit code."""
    console = Console(markup=False, emoji=False, highlight=False)
    rows, seeds = request.rows, request.all_seeds
    todo = missing(rows, seeds, read_records(request.folders))
    console.print(f"grokking: {len(rows)} rows of {len(seeds)} seeds, {len(rows) - len(todo)} of them done.")
    if request.is_dry:
        for row in todo:
            console.print(f"  {row.name}: {row.title}, {row.steps:,} steps")
        return 0
    code = 0 if request.is_rebuild else _trained(console, request, todo)
    records = {name: record for name, record in read_records(request.folders).items() if record.row in rows}
    if not records:
        if request.is_rebuild:
            raise ValueError(f"expected records in {' or '.join(map(str, request.folders))}, got none")
        return code
    for path in write_page(records, request.folder):
        console.print(f"Written: {path}", soft_wrap=True)
    console.print(summary(records), soft_wrap=True)
    return code


def _trained(console: Console, request: GrokkingRequest, rows: Sequence[Row]) -> int:
    """Train the rows one after another; the exit code."""
    device = request.where()

    def work() -> int:
        try:
            with interrupted_after(request.minutes) as look:
                for row in rows:
                    _done(console, request, row, device, look)
        except TimeIsUp:
            print("The time limit was reached. Run the same command again for the other rows.", file=sys.stderr)
            return INCOMPLETE
        return 0

    return exit_code(work)


def _done(console: Console, request: GrokkingRequest, row: Row, device: torch.device, look: Callable[[], None]) -> None:
    """Train one row under a progress bar, and write its record."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(row.title, total=row.steps)

        def report(step: int) -> None:
            bar.update(task, completed=step)
            look()

        record = recorded(row, request.all_seeds, device, report)
    for folder in request.folders:
        write_record(record, folder)
    count = sum(step is not None for step in record.steps_to_generalize())
    console.print(
        f"{row.title}: {count} of {len(record.seeds)} seeds generalize in {row.steps:,} steps, "
        f"{duration(record.made['seconds'])} on {record.made['device']}",
        soft_wrap=True,
    )
