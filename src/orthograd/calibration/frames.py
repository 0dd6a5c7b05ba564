"""Frames and series of pandas and polars as arrays. Columns are the classes, by position."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any


def is_frame(values: Any) -> bool:
    """True for a frame or a series."""
    return hasattr(values, "to_numpy") or hasattr(type(values), "columns")  # a lazy frame computes its own


def as_array(values: Any, name: str) -> Any:
    """The values as an array of numpy, in the order of the rows; an index is ignored.

    Raises:
        TypeError: for a frame that is not in memory, or a column that holds no numbers.
        ValueError: if columns with numbers in their names are not in their order, or an integer is missing.
    """
    if not hasattr(values, "to_numpy"):
        raise TypeError(
            f"expected {name} as a frame with to_numpy(), got a {type(values).__name__}: "
            "call .collect() on a lazy frame of polars, .to_pandas() on a table of Arrow"
        )
    _refuse_unordered([str(column) for column in getattr(values, "columns", ())])
    array = _of_pandas(values, name) if hasattr(values, "isna") else values.to_numpy()
    return array.copy()  # because torch warns of arrays that are not writable


def _of_pandas(values: Any, name: str) -> Any:
    """The values as numbers. Of columns that allow missing values, pandas makes an array of objects."""
    dtypes = dict(values.dtypes) if hasattr(values, "columns") else {values.name: values.dtype}
    kinds = {dtype.kind for dtype in dtypes.values()}
    missing = int(values.isna().to_numpy().sum())
    if missing and kinds <= set("iub"):
        raise ValueError(f"expected {name} without missing values, got {missing} missing")
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
