"""How `orthograd evaluate` goes about it: read, compute, draw, write and print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from ..predictions_file import PredictionsFile, read_predictions
from .computing import evaluated
from .devices import device_named
from .record import write_figure, write_record
from .results import Results, Settings
from .table import explanations, notes, tables


def printed_evaluation(
    files: Sequence[Path],
    held_out: Sequence[Path],
    settings: Settings,
    *,
    probabilities: bool,
    keys: tuple[str | None, str | None],
    out: Path,
    device: str,
    explain: bool,
) -> None:
    """Do all that the command does; exit code 2 and a line if a file is not what it must be."""
    console, chosen = Console(), device_named(device)

    def read(path: Path) -> PredictionsFile:
        file = read_predictions(path, scores_key=keys[0], labels_key=keys[1], probabilities=probabilities)
        return replace(file, scores=file.scores.to(chosen), labels=file.labels.to(chosen))

    try:
        if find_spec("matplotlib") is None:
            raise ImportError("the figure needs matplotlib: pip install '.[lab]'")
        with console.status("reading …") as status:
            fitted_on, found = [read(path) for path in held_out], [read(path) for path in files]
            status.update("evaluating …")
            results = evaluated(found, fitted_on, settings)
            status.update("drawing …")
            written = [write_record(results, out), write_figure(results, out)]
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"orthograd evaluate: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
    _print(console, results, written, explain=explain)


def _print(console: Console, results: Results, written: list[Path], *, explain: bool) -> None:
    for table in tables(results, width=console.width):
        console.print(table)
    for note in notes(results):
        console.print(Text(note, "dim"))
    if explain:
        for name, meaning in explanations(results):
            console.print(Text.assemble((name, "bold"), f": {meaning}"))
    console.print(Text(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)
