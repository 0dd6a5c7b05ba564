"""Tables with a row for each sample: .csv and .parquet."""

from __future__ import annotations

import csv
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .arrays import needed
from .keys import Keys, UnusableError


def csv_table(path: Path, keys: Keys) -> tuple[Tensor, Tensor]:
    """Scores and labels of a table with a header: a column of labels, every other column a class, in order."""
    if keys.scores is not None:
        raise UnusableError(f"a .csv has a column for each class and no key for scores, got {keys.scores!r}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        label, _ = _label_and_classes(names, keys)
        numbers = array("d")
        for row in rows:
            if row:  # blank lines hold nothing
                numbers.extend(_cells(row, names, rows.line_num))
    if not numbers:
        raise UnusableError("expected at least one row under the header, got none")
    table = torch.frombuffer(numbers, dtype=torch.float64).view(-1, len(names))
    is_class = torch.tensor([name != label for name in names])
    return table[:, is_class], whole(table[:, names.index(label)], label)


def parquet(path: Path, keys: Keys) -> tuple[Tensor, Tensor]:
    """Scores and labels of a table as above, or with the scores of a sample as a list in one column."""
    table = needed("pyarrow.parquet", path).read_table(path)
    table = table.select([name for name in table.column_names if not name.startswith("__index_level_")])  # pandas'
    names = table.column_names
    if keys.has_scores_among(names):
        label = keys.labels_among(names)
        return _lists(table, keys.scores_among(names), path), whole(_column(table, label), label)
    if keys.scores is not None:
        keys.scores_among(names)  # raises, naming what is there
    label, classes = _label_and_classes(names, keys)
    return torch.stack([_column(table, name) for name in classes], 1), whole(_column(table, label), label)


def whole(values: Tensor, name: str) -> Tensor:
    """Labels read as float64, as the whole numbers that they are.

    >>> whole(torch.tensor([0.0, 2.0]), "label")
    tensor([0, 2])
    """
    broken = ((values != values.round()) | values.isinf()).nonzero()
    if len(broken):
        row = int(broken[0])
        raise UnusableError(f"expected labels as whole numbers, got {float(values[row]):g} in {name!r}, row {row}")
    return values.long()


def _label_and_classes(names: Sequence[str], keys: Keys) -> tuple[str, list[str]]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UnusableError(f"expected column names that differ, got {twice[0]!r} twice")
    if any(not name.strip() or name.startswith("Unnamed:") for name in names):
        raise UnusableError("expected a name for every column, got one without: is it an index? leave it out")
    label = keys.labels_among(names)
    classes = [name for name in names if name != label]
    # Sorted as text, 10 comes before 2; the labels would then mean other classes.
    if all(name.isdecimal() for name in classes) and classes != sorted(classes, key=int):
        raise UnusableError(f"expected the columns of the classes in order, got {', '.join(classes)}")
    return label, classes


def _cells(row: Sequence[str], names: Sequence[str], line: int) -> list[float]:
    if len(row) != len(names):
        raise UnusableError(f"expected {len(names)} cells as in the header, got {len(row)} in line {line}")
    try:
        return list(map(float, row))
    except ValueError:
        name, cell = next((name, cell) for name, cell in zip(names, row, strict=True) if not _is_number(cell))
        raise UnusableError(f"expected a number in line {line}, column {name!r}, got {cell!r}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(table: Any, name: str) -> Tensor:
    return _numbers(table.column(name), name).double()


def _lists(table: Any, name: str, path: Path) -> Tensor:
    column = table.column(name)
    if "list<" not in str(column.type) and "list[" not in str(column.type):
        raise UnusableError(f"expected a list of scores for each sample in {name!r}, got {column.type}")
    lengths = needed("pyarrow.compute", path).list_value_length(column).unique().to_pylist()
    if len(lengths) != 1 or lengths[0] is None:
        raise UnusableError(f"expected as many scores for each sample in {name!r}, got lists of {lengths}")
    return _numbers(needed("pyarrow.compute", path).list_flatten(column), name).view(-1, lengths[0])


def _numbers(column: Any, name: str) -> Tensor:
    if column.null_count:
        raise UnusableError(f"expected a number in every cell, got {column.null_count} empty in {name!r}")
    values = column.to_numpy()
    if values.dtype.kind not in "fiu":
        raise UnusableError(f"expected numbers in {name!r}, got {column.type}")
    return torch.from_numpy(values.copy())  # what belongs to pyarrow may not be written to
