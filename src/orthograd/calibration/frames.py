"""Frames and series of pandas and polars as arrays. Columns are the classes, by position."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any


def is_frame(values: Any) -> bool:
    """True for a frame or a series."""
    return hasattr(values, "to_numpy") or hasattr(type(values), "columns")  # a lazy frame computes its own


def as_array(values: Any, name: str) -> Any:
    """The values as an array of numpy, in the order of the rows; an index is ignored.

    Raises:
        TypeError: for a frame that is not in memory, or a column that holds no numbers.
        ValueError: if two columns have one name, or numbers in their names are out of order, or an integer is missing.
    """
    if not hasattr(values, "to_numpy"):
        raise TypeError(
            f"expected {name} as a frame with to_numpy(), got a {type(values).__name__}: "
            "call .collect() on a lazy frame of polars, .to_pandas() on a table of Arrow"
        )
    columns = list(getattr(values, "columns", ()))
    twice = [str(column) for column, count in Counter(columns).items() if count > 1]
    if twice:
        raise ValueError(f"expected {name} with column names that differ, got {twice[0]!r} twice")
    _refuse_unordered([str(column) for column in columns])
    if type(values).__module__.startswith("polars"):
        _refuse_nulls(values, name)
    array = _of_pandas(values, name) if hasattr(values, "isna") else values.to_numpy()
    return array.copy()  # because torch warns of arrays that are not writable


def refuse_column(scores: Any, name: str, **others: Any) -> None:
    """Raise ValueError if the labels or weights are also a column of the scores, which would count as a class.

    Columns named by text are compared by name. Numbers are often mere positions, so there the values decide.
    """
    columns = list(getattr(scores, "columns", ()))
    for other, series in others.items():
        column = None if hasattr(series, "columns") else getattr(series, "name", None)
        if column is None or column not in columns:
            continue
        if isinstance(column, str) or scores[column].to_numpy().tolist() == series.to_numpy().tolist():
            raise ValueError(
                f"expected {name} without the column of the {other}, got it as {str(column)!r}: "
                "select the columns of the classes"
            )


def _refuse_nulls(values: Any, name: str) -> None:
    """Raise ValueError if integers of polars are missing: its arrays have NaN there, and all else in floating point."""
    columns = values.get_columns() if hasattr(values, "columns") else [values]
    missing = sum(column.null_count() for column in columns)
    if missing and all(column.dtype.is_integer() or str(column.dtype) == "Boolean" for column in columns):
        raise _missing(name, missing)


def _missing(name: str, count: int) -> ValueError:
    return ValueError(f"expected {name} without missing values, got {count} missing")


def _of_pandas(values: Any, name: str) -> Any:
    """The values as numbers. Of columns that allow missing values, pandas makes an array of objects."""
    dtypes = dict(values.dtypes) if hasattr(values, "columns") else {values.name: values.dtype}
    kinds = {dtype.kind for dtype in dtypes.values()}
    missing = int(values.isna().to_numpy().sum())
    if missing and kinds <= set("iub"):
        raise _missing(name, missing)
    array = values.to_numpy()
    if array.dtype != object:
        return array
    other = [f"{str(column)!r} of {dtype}" for column, dtype in dtypes.items() if dtype.kind not in "fiub"]
    if other:
        raise TypeError(f"expected {name} as numbers, got the column {other[0]}")
    if kinds <= set("iub"):
        return values.to_numpy(dtype="bool" if kinds == {"b"} else "int64")
    return values.to_numpy(dtype="float64", na_value=math.nan)


def _refuse_unordered(columns: Sequence[str]) -> None:
    """Raise for class_0, class_1, class_10, class_2: labels count by number, tables often sort by text."""
    parts = [re.fullmatch(r"(.*?)(\d+)", column) for column in columns]
    numbers = [int(part[2]) for part in parts if part and parts[0] and part[1] == parts[0][1]]
    if len(numbers) == len(columns) and numbers != sorted(numbers):
        raise ValueError(
            f"expected columns in the order of the classes, got {', '.join(columns)}: select them by their numbers"
        )
