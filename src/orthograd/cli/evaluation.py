"""How `orthograd evaluate` goes about it: read, compute, draw, write and print."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from .. import __version__
from ..calibration import CONVENTIONS, InputWarning
from ..calibration.files.evaluation import (
    Column,
    Difference,
    Results,
    Settings,
    Temperature,
    are_same,
    evaluated,
    have_same_labels,
    without_interval,
)
from ..calibration.files.reading import PredictionsFile, read_predictions
from ..lab.jobs.files import replaced
from .device import device_named


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


def write_record(results: Results, folder: Path) -> Path:
    """Write the numbers to evaluation.json in the folder."""
    text = json.dumps(strict(as_record(results)), indent=1, ensure_ascii=False, allow_nan=False)
    return replaced(folder / "evaluation.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))


def write_figure(results: Results, folder: Path) -> Path:
    """Write the reliability diagrams to reliability.png in the folder."""
    from ..figures.reliability import reliability_figure
    from ..figures.style import save_figure  # with matplotlib, which no other command waits for

    figure = reliability_figure({column.name: column.curve for column in results.columns})
    return replaced(folder / "reliability.png", lambda path: save_figure(figure, path))


def as_record(results: Results) -> dict[str, Any]:
    """The results as plain data, with all that is needed to get them again."""
    return {
        "orthograd": __version__,
        "torch": torch.__version__,
        **asdict(results.settings),
        "logits_that_look_like_probabilities": [str(file.path) for file in results.doubtful.values()],
        "files": [_file(column) for column in results.columns],
        "differences": [_difference(difference) for difference in results.differences],
    }


def strict(value: Any) -> Any:
    """Plain data for JSON, which knows neither infinity nor NaN: they are strings.

    >>> strict({"high": torch.tensor(float("inf")), "is_flat": torch.tensor(False)})
    {'high': 'inf', 'is_flat': False}
    """
    if isinstance(value, Tensor):
        return strict(value.tolist())
    if isinstance(value, Mapping):
        return {name: strict(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [strict(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _file(column: Column) -> dict[str, Any]:
    temperature = None if column.temperature is None else _temperature(column.temperature)
    return {
        "path": str(column.file.path),
        "source": column.file.source,
        "temperature": temperature,
        **column.metrics.as_dict(),
    }


def _temperature(temperature: Temperature) -> dict[str, Any]:
    fit = temperature.scaling.certificate
    return {
        "value": temperature.scaling.temperature,
        "fitted_on": str(temperature.fitted_on.path),
        "certificate": None if fit is None else asdict(fit),
        "summary": str(fit),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "path": str(difference.column.file.path),
        "minus": str(difference.first.file.path),
        "is_after_temperature": difference.column.temperature is not None,
        "metrics": difference.values,
        "intervals": difference.intervals,
        "excludes_zero": [name for name in difference.values if difference.excludes_zero(name)],
    }


ARROWS = {"lower": " ↓", "higher": " ↑", None: ""}
INKS = {"better": "green", "worse": "red", "different": "bold", "": ""}


@dataclass(frozen=True)
class _Cell:
    number: str
    interval: str = ""
    remark: str = ""
    ink: str = ""

    def text(self, *, beside: bool) -> Text:
        text = Text(self.number, self.ink)
        if self.interval:
            text.append((" " if beside else "\n") + self.interval, "dim")
        if self.remark:
            text.append("\n" + self.remark, "dim")
        return text


_Shown = tuple[str, list[_Cell]]


def tables(results: Results, *, width: int) -> Iterator[Table]:
    """Tables for a console this wide: intervals beside their numbers where there is room, else beneath."""
    names = list(results.columns[0].metrics.asked)
    shown = [_of_column(column, names) for column in results.columns]
    shown += [_of_difference(difference, names) for difference in results.differences]
    room = width - max(map(len, names)) - 6
    beside = sum(_width(cells, beside=True) for _, cells in shown) <= room
    for group in _groups(shown, room, beside=beside):
        table = Table("metric")
        for header, cells in group:
            table.add_column(Text(header), overflow="fold", justify="right", max_width=_width(cells, beside=beside) - 3)
        for row, name in enumerate(names):
            texts = [cells[row].text(beside=beside) for _, cells in group]
            table.add_row(name + ARROWS[CONVENTIONS[name].better], *texts)
        yield table


def sources(results: Results) -> Iterator[str]:
    """Where in each file the numbers were, and whether they look like something else."""
    for source in dict.fromkeys(file.source for file in results.files.values()):
        names = ", ".join(name for name, file in results.files.items() if file.source == source)
        yield f"{names}: {source}."
    for name in results.doubtful:
        yield (
            f"{name}: every row lies in [0, 1] and sums to 1, as probabilities do, but it is evaluated as logits. "
            "If they are probabilities, pass --probabilities, and --scores-key logits for an array of that name."
        )


def notes(results: Results) -> Iterator[str]:
    """What to know to read the tables."""
    first, settings = results.columns[0], results.settings
    sizes = {
        column.name: f"{column.metrics.samples:,} samples, {column.metrics.classes} classes"
        for column in results.columns
    }
    each = (f"{name}: {size}" for name, size in sizes.items())
    told = "; ".join(each) if len(set(sizes.values())) > 1 else sizes[first.name]
    yield f"{told}; {settings.bins} bins."
    yield from _notes_on_temperatures(results)
    yield "↓ lower is better, ↑ higher is better; --explain says what each number means."
    if settings.resamples:
        yield (
            f"[…] 95 % bootstrap intervals over samples: {settings.resamples} resamples, seed {settings.seed}; "
            "for the accuracies of a file, Wilson intervals."
        )
        yield from _notes_on_intervals(results)
    count = max((len(difference.intervals) for difference in results.differences), default=0)
    if count:
        yield (
            "* the interval of the difference, over the same samples of both, excludes 0; "
            f"each by itself, not corrected for looking at {count}."
        )
    if any(not have_same_labels(first.file, column.file) for column in results.columns):
        yield f"Not every file has the labels of {first.name}: only those that do are compared with it."


def _notes_on_intervals(results: Results) -> Iterator[str]:
    """Where a bootstrap cannot know: it never draws what the samples do not hold."""
    same = {
        column.name: without_interval(column.metrics.as_row(), column.metrics.intervals) for column in results.columns
    }
    same |= {
        difference.name: without_interval(difference.values, difference.intervals) for difference in results.differences
    }
    for name, metrics in same.items():
        if metrics:
            yield f"{name}: every resample gives the same {', '.join(metrics)}, so the bootstrap knows no interval."
    for column in results.columns:
        outcome = {0.0: "wrong", 100.0: "right"}.get(column.metrics.top1_accuracy or 0.0)
        if outcome is not None:
            yield (
                f"{column.name}: every prediction is {outcome}, so the bootstrap cannot know what others would "
                "do: the intervals of loss, brier and all calibration errors are too narrow."
            )


def _notes_on_temperatures(results: Results) -> Iterator[str]:
    scaled = [(column.file.path, column.temperature) for column in results.columns if column.temperature is not None]
    for fit in dict.fromkeys(temperature for _, temperature in scaled):
        yield f"Fitted on {fit.fitted_on.path}: {fit.scaling.certificate}."
    if len(scaled) > len({fit.fitted_on.path for _, fit in scaled}):
        yield "One temperature for several files is right if they come from one model; else fit one for each."
    plain = {column.file.path: column.file for column in results.columns if column.temperature is None}
    if any(are_same(plain[path], fit.fitted_on) for path, fit in scaled):
        yield "A temperature was fitted on the very samples it is evaluated on, so that result is too good."


def explanations(results: Results) -> Iterator[tuple[str, str]]:
    """Each metric and what it means."""
    yield from results.columns[0].metrics.conventions.items()


def _of_column(column: Column, names: Sequence[str]) -> _Shown:
    metrics = column.metrics
    cells = [_Cell(metrics.formatted(name), metrics.formatted_interval(name)) for name in names]
    curve = column.curve
    by_chance = f"by chance {curve.ece_by_chance:.4f}\n(95 %: {curve.ece_by_chance_limit:.4f})"
    ece = names.index("ece")
    cells[ece] = _Cell(cells[ece].number, cells[ece].interval, by_chance)
    return column.name, cells


def _of_difference(difference: Difference, names: Sequence[str]) -> _Shown:
    return difference.name, [_cell_of_difference(difference, name) for name in names]


def _cell_of_difference(difference: Difference, name: str) -> _Cell:
    value, convention = difference.values[name], CONVENTIONS[name]
    if value is None:
        return _Cell("")
    verdict = difference.verdict(name)
    interval = ""
    if name in difference.intervals:
        low, high = difference.intervals[name]
        interval = f"[{low:+.{convention.digits}f}, {high:+.{convention.digits}f}]"
    number = f"{'* ' + verdict + ' ' if verdict else ''}{value:+.{convention.digits}f}"
    return _Cell(number, interval, ink=INKS[verdict])


def _width(cells: Sequence[_Cell], *, beside: bool) -> int:
    lines = [line for cell in cells for line in cell.text(beside=beside).plain.splitlines()]
    return max(12, *map(len, lines)) + 3


def _groups(shown: Sequence[_Shown], room: int, *, beside: bool) -> Iterator[list[_Shown]]:
    group: list[_Shown] = []
    left = room
    for header, cells in shown:
        width = _width(cells, beside=beside)
        if group and width > left:
            yield group
            group, left = [], room
        group.append((header, cells))
        left -= width
    yield group
