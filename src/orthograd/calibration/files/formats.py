"""Readers of scores and labels: named arrays in .npz and .safetensors, tables in .csv and .parquet."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor

from ..inputs import Task
from ..rows import place_of
from .keys import FIRST, Columns, Keys, UnusableError, is_number, listed

OFFSETS = "offsets"
EVERY = 1000  # lines between two reports of progress

Report = Callable[[int], object]
"""Is called with the number of bytes that were read so far."""


class Content(NamedTuple):
    """Scores, labels, and a description of where they were in the file; offsets of multiple choice.

    ``task`` is None unless the format states it, ``name`` a name for the samples, if the file has one, and ``lines``
    the line of each row, if rows have lines.
    """

    scores: Tensor
    labels: Tensor
    source: str
    offsets: Tensor | None = None
    task: Task | None = None
    name: str | None = None
    lines: Sequence[int] = ()


class Row(NamedTuple):
    """A row of named values, with its place in the file for errors, and its line if it has one."""

    values: dict[str, Any]
    place: str
    line: int | None = None


def offsets_of(counts: Sequence[int]) -> Tensor:
    """The offsets (n + 1,) of rows with these numbers of scores.

    >>> offsets_of([2, 3])
    tensor([0, 2, 5])
    """
    return torch.tensor([0, *counts]).cumsum(0)


def shortened(text: str) -> str:
    """Text of at most 60 characters, for an error."""
    return text if len(text) <= 60 else f"{text[:57]}…"


def reported(file: TextIO, report: Report) -> Iterator[str]:
    """The lines of a file, reporting the bytes that were read."""
    for number, line in enumerate(file):
        if number % EVERY == 0:
            report(file.buffer.tell())
        yield line


def needed(module: str, path: Path) -> ModuleType:
    """Import an optional module; if it is missing, the error says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{path}: {path.suffix} files need {package}: pip install '.[lab]'", name=package) from error


def npz(path: Path, keys: Keys, _: Report) -> Content:
    """Scores and labels of numpy.savez(path, logits=…, labels=…)."""
    numpy = needed("numpy", path)
    file = numpy.load(path, allow_pickle=False)
    if not hasattr(file, "files"):
        raise UnusableError("expected the named arrays of numpy.savez(path, logits=…, labels=…), got a single array")
    with file:
        scores, labels = keys.arrays_among(file.files)
        offsets = _array_numbers(numpy, file, OFFSETS) if _has_offsets(keys, file.files) else None
        values, truth = (_array_numbers(numpy, file, name) for name in (scores, labels))
        return Content(values, whole(truth, labels), keys.source(scores, labels), offsets)


def safetensors(path: Path, keys: Keys, _: Report) -> Content:
    """Scores and labels of safetensors.torch.save_file({"logits": …, "labels": …}, path)."""
    with needed("safetensors", path).safe_open(path, framework="pt") as file:
        scores, labels = keys.arrays_among(file.keys())
        values = file.get_tensor(scores)
        if values.is_floating_point() and values.element_size() < 2:
            raise UnusableError(f"expected scores of at least half precision in {scores!r}, got {values.dtype}")
        offsets = file.get_tensor(OFFSETS) if _has_offsets(keys, file.keys()) else None
        return Content(values, whole(file.get_tensor(labels), labels), keys.source(scores, labels), offsets)


def _has_offsets(keys: Keys, names: Sequence[str]) -> bool:
    """True for multiple choice, whose scores (m,) need offsets (n + 1,)."""
    if keys.task == "multiple_choice" and OFFSETS not in names:
        listed = ", ".join(map(repr, names))
        raise UnusableError(f"expected an array {OFFSETS!r} (n + 1,) beside the scores (m,), got {listed}")
    return keys.task == "multiple_choice"


def _array_numbers(numpy: ModuleType, file: Any, name: str) -> Tensor:
    try:
        values = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise UnusableError(
            f"expected numbers in {name!r}, got Python objects: loading a pickle could run code"
        ) from error
    if values.dtype.kind not in "fiub":
        raise UnusableError(f"expected numbers in {name!r}, got an array of {values.dtype}")
    return torch.from_numpy(numpy.asarray(values, dtype=values.dtype.newbyteorder("=")))  # native byte order


def csv_table(path: Path, keys: Keys, report: Report) -> Content:
    """Scores and labels of a table with a header: a column of labels and one for each class."""
    _refuse_other_task(keys, path)
    if keys.scores is not None:
        raise UnusableError(
            f"expected no --scores-key for a .csv, which has a column for each class, got {keys.scores!r}: "
            "name the columns with --classes"
        )
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(reported(file, report))
        names = [name.strip() for name in next(rows, [])]
        _refuse_other_separator(names)
        numbered = _numbered(rows)
        beginning = list(islice(numbered, FIRST))
        first = dict(zip(names, zip(*(row for _, row in beginning), strict=False), strict=False))
        columns = keys.columns_among(names, lambda: first)
        place = {name: index for index, name in enumerate(names)}
        used = [place[name] for name in (*columns.classes, columns.label)]
        by_name = columns.numbers_of(first.get(columns.label, ("",))[0].strip())
        numbers, lines = array("d"), array("q")
        for line, row in chain(beginning, numbered):
            lines.append(line)
            numbers.extend(_cells(row, names, used, line, by_name))
    if not numbers:
        raise UnusableError("expected at least one row under the header, got none")
    table = torch.frombuffer(numbers, dtype=torch.float64).view(-1, len(used))
    return Content(table[:, :-1], whole(table[:, -1], columns.label, lines), str(columns), lines=lines)


def _numbered(rows: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a csv reader that are not blank, each with its first line: quoted cells may have several."""
    line = rows.line_num + 1
    for row in rows:
        if row:
            yield line, row
        line = rows.line_num + 1


def parquet(path: Path, keys: Keys, _: Report) -> Content:
    """Scores and labels of a table, with a column for each class or one column with a list of scores."""
    _refuse_other_task(keys, path)
    with needed("pyarrow.parquet", path).ParquetFile(path) as file:  # read_table adds columns for folders such as y=1
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]  # pandas'
        if keys.has_scores_among(names):
            scores, label = keys.arrays_among(names)
            table = file.read([scores, label])
            truth = whole(_column(table, label), label)
            return Content(_lists(table, scores, path), truth, keys.source(scores, label))
        columns = keys.columns_among(names, lambda: _first_cells(file))
        table = file.read([*columns.classes, columns.label])
    values = torch.stack([_column(table, name) for name in columns.classes], 1)
    return Content(values, _labels(table, columns), str(columns))


def _first_cells(file: Any) -> dict[str, list[Any]]:
    batch = next(file.iter_batches(FIRST), None)
    columns = [] if batch is None else [column.to_pylist() for column in batch.columns]
    return dict(zip(file.schema_arrow.names, columns, strict=False))


def _labels(table: Any, columns: Columns) -> Tensor:
    """The labels of a table: integers, or names of the classes."""
    column = table.column(columns.label)
    names = column.to_pylist() if "string" in str(column.type) and not column.null_count else []
    by_name = columns.numbers_of(names[0].strip()) if names else {}
    if not by_name:
        return whole(_column(table, columns.label), columns.label)
    return torch.tensor([_label(name, by_name, f", row {row}") for row, name in enumerate(names)])


def _refuse_other_separator(names: Sequence[str]) -> None:
    separator = next((each for each in ";\t|" if len(names) == 1 and each in names[0]), None)
    if separator is not None:
        raise UnusableError(
            f"expected columns separated by ',', got {shortened(names[0])!r}: write the table with ',' instead of "
            f"{separator!r}, and with '.' in decimal numbers"
        )


def _label(name: str, by_name: Mapping[str, int], place: str) -> int:
    if name.strip() not in by_name:
        raise UnusableError(f"expected a label among {listed(list(by_name))}, got {name!r}", place)
    return by_name[name.strip()]


def _refuse_other_task(keys: Keys, path: Path) -> None:
    if keys.task != "multiclass":
        raise UnusableError(f"expected a .npz, .safetensors or .jsonl file for task {keys.task!r}, got {path.suffix}")


def whole(values: Tensor, name: str, lines: Sequence[int] = ()) -> Tensor:
    """Labels in floating point, converted to integers; others as they are.

    >>> whole(torch.tensor([0.0, 2.0]), "label")
    tensor([0, 2])
    """
    if not values.is_floating_point():
        return values
    exact, most = values.double(), 2 / torch.finfo(values.dtype).eps
    broken = ((exact != exact.round()) | (exact.abs() > most)).nonzero()
    if len(broken):
        index = tuple(broken[0].tolist())
        value = float(exact[index])
        where, place = (f"in {name!r}", f":{lines[index[0]]}") if lines else (f"{place_of(index)} of {name!r}", "")
        hint = f": {values.dtype} cannot hold every integer above {most:g}" if abs(value) > most else ""
        raise UnusableError(f"expected labels as integers, got {value:g} {where}{hint}", place)
    return exact.long()


def _cells(
    row: Sequence[str], names: Sequence[str], used: Sequence[int], line: int, by_name: Mapping[str, int]
) -> list[float]:
    """The numbers in the used columns. The last one has the label, which may be the name of a class."""
    if len(row) != len(names):
        raise UnusableError(f"expected {len(names)} cells as in the header, got {len(row)}", f":{line}")
    try:
        scores = [float(row[index]) for index in (used[:-1] if by_name else used)]
    except ValueError:
        index = next(index for index in used if not is_number(row[index]))
        hint = "; if labels are names, they must be those of the columns" if index == used[-1] else ""
        message = f"expected a number in column {names[index]!r}, got {row[index]!r}{hint}"
        raise UnusableError(message, f":{line}") from None
    return [*scores, _label(row[used[-1]], by_name, f":{line}")] if by_name else scores


def _column(table: Any, name: str) -> Tensor:
    return _column_numbers(table.column(name), name).double()


def _lists(table: Any, name: str, path: Path) -> Tensor:
    column = table.column(name)
    if "list<" not in str(column.type) and "list[" not in str(column.type):
        raise UnusableError(f"expected a list of scores for each sample in {name!r}, got {column.type}")
    lengths = needed("pyarrow.compute", path).list_value_length(column).unique().to_pylist()
    if len(lengths) != 1 or lengths[0] is None:
        raise UnusableError(f"expected the same number of scores for each sample in {name!r}, got lists of {lengths}")
    return _column_numbers(needed("pyarrow.compute", path).list_flatten(column), name).view(-1, lengths[0])


def _column_numbers(column: Any, name: str) -> Tensor:
    if column.null_count:
        raise UnusableError(f"expected a number in every cell, got {column.null_count} empty in {name!r}")
    values = column.to_numpy()
    if values.dtype.kind not in "fiu":
        raise UnusableError(f"expected numbers in {name!r}, got {column.type}")
    return torch.from_numpy(values.copy())  # arrays of pyarrow are read-only
