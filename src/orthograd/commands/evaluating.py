"""How `orthograd evaluate` goes about it: read, compute, draw, write and print."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from ..calibration import InputWarning
from ..predictions_file import PredictionsFile, read_predictions
from .computing import evaluated
from .devices import device_named
from .record import write_figure, write_record
from .results import Results, Settings
from .table import explanations, notes, sources, tables


@dataclass(frozen=True)
class Names:
    """What the files hold, and under which names where these are not the usual ones; classes as in cat,"dog, big"."""

    scores: str | None
    labels: str | None
    classes: str | None
    probabilities: bool

    def read(self, path: Path) -> PredictionsFile:
        """The predictions in one file."""
        return read_predictions(
            path,
            scores_key=self.scores,
            labels_key=self.labels,
            classes=None if self.classes is None else _split(self.classes),
            probabilities=self.probabilities,
        )


def _split(classes: str) -> list[str]:
    try:
        return next(csv.reader([classes], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"expected --classes as names with commas between them, got {classes!r}: {error}") from error


def printed_evaluation(
    files: Sequence[Path],
    held_out: Sequence[Path],
    settings: Settings,
    names: Names,
    *,
    out: Path,
    device: str,
    explain: bool,
) -> None:
    """Do all that the command does; exit code 2 and a line if a file is not what it must be."""
    console, chosen = Console(), device_named(device)

    def read(path: Path) -> PredictionsFile:
        file = names.read(path)
        return replace(file, scores=file.scores.to(chosen), labels=file.labels.to(chosen))

    try:
        with console.status("reading …") as status, warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # a note says the same
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
    for source in sources(results):
        console.print(Text(source))
    for table in tables(results, width=console.width):
        console.print(table)
    for note in notes(results):
        console.print(Text(note, "dim"))
    if explain:
        for name, meaning in explanations(results):
            console.print(Text.assemble((name, "bold"), f": {meaning}"))
    console.print(Text(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)
