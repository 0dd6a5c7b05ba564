"""The output of `orthograd evaluate`: sources, tables that fit the console, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..calibration import CONVENTIONS
from ..calibration.files.evaluation import (
    Column,
    Difference,
    Results,
    are_paired,
    has_independent_samples,
    without_interval,
)

ARROWS = {"lower": " ↓", "higher": " ↑", None: ""}
INKS = {"better": "green", "worse": "red", "different": "bold", "": ""}


def print_results(console: Console, results: Results, written: list[Path], *, explain: bool) -> None:
    """Print the results with their notes, and the files that were written."""
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
    """Tables that fit the width: intervals beside their numbers if there is room, otherwise below."""
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
    """The source of the scores in each file, with warnings."""
    for source in dict.fromkeys(file.source for file in results.files.values()):
        names = ", ".join(name for name, file in results.files.items() if file.source == source)
        yield f"{names}: {source}."
    yield from results.doubts


def notes(results: Results) -> Iterator[str]:
    """Notes below the tables."""
    first, settings = results.columns[0], results.settings
    sizes = {column.name: column.metrics.size for column in results.columns}
    each = (f"{name}: {size}" for name, size in sizes.items())
    words = "; ".join(each) if len(set(sizes.values())) > 1 else sizes[first.name]
    yield f"{words}; {settings.bins} bins."
    yield from _notes_on_temperatures(results)
    yield "↓ lower is better, ↑ higher is better; --explain defines each metric."
    if settings.resamples and any(has_independent_samples(column.file) for column in results.columns):
        yield (
            f"[…] 95% bootstrap intervals over samples: {settings.resamples} resamples, seed {settings.seed}; "
            "for the accuracies of a file, Wilson intervals."
        )
        yield from _notes_on_intervals(results)
    count = max((len(difference.intervals) for difference in results.differences), default=0)
    if count:
        yield (f"* the paired interval of the difference excludes 0; not corrected for the {count} metrics.")
    dependent = [column.name for column in results.columns if not has_independent_samples(column.file)]
    if settings.resamples and dependent:
        yield f"{', '.join(dependent)}: no intervals, as positions of one map, sequence or sample are not independent."
    is_pooled = any(column.is_pooled for column in results.columns)
    if not is_pooled and any(not are_paired(first.file, column.file) for column in results.columns):
        same = "labels" if first.file.benchmark is None else "task and labels"
        yield f"Only files with the same {same} as {first.name} are compared with it."


def _notes_on_intervals(results: Results) -> Iterator[str]:
    """Notes where a bootstrap interval is missing or too narrow, as it only draws what the samples hold."""
    same = {
        column.name: without_interval(column.metrics.as_row(), column.metrics.intervals)
        for column in results.columns
        if has_independent_samples(column.file)
    }
    same |= {
        difference.name: without_interval(difference.values, difference.intervals)
        for difference in results.differences
        if has_independent_samples(difference.column.file)
    }
    for name, metrics in same.items():
        if metrics:
            yield f"{name}: no interval for {', '.join(metrics)}, which every resample leaves the same."
    for column in filter(lambda column: has_independent_samples(column.file), results.columns):
        outcome = {0.0: "wrong", 100.0: "right"}.get(column.metrics.top1_accuracy or 0.0)
        if outcome is not None:
            yield (
                f"{column.name}: every prediction is {outcome}, so the bootstrap intervals of loss, brier and all "
                "calibration errors are too narrow."
            )


def _notes_on_temperatures(results: Results) -> Iterator[str]:
    scaled = [(column.file.path, column.temperature) for column in results.columns if column.temperature is not None]
    for fit in dict.fromkeys(temperature for _, temperature in scaled):
        yield f"Fitted on {fit.fitted_on.path}: {fit.summary}."
    if len(scaled) > len({fit.fitted_on.path for _, fit in scaled}):
        yield "One temperature for several files is valid only if they come from one model; otherwise fit one per file."


def explanations(results: Results) -> Iterator[tuple[str, str]]:
    """Each metric with its definition."""
    yield from results.columns[0].metrics.conventions.items()


def _of_column(column: Column, names: Sequence[str]) -> _Shown:
    metrics = column.metrics  # the curve of a multi-label problem is that of all decisions, the metrics are means
    cells = [_Cell(metrics.formatted(name), metrics.formatted_interval(name)) for name in names]
    by_chance = f"by chance {metrics.formatted('ece_by_chance')}\n(95%: {metrics.formatted('ece_by_chance_limit')})"
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
