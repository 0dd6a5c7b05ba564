"""Many records of one shape as columns: every name once, then a list with a value for each run. Nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def columns_of(values: Sequence[Any]) -> Any:
    """Mappings with the same keys become one mapping of columns; anything else a list.

    >>> columns_of([{"seed": 0, "loss": {"clean": 0.5}}, {"seed": 1, "loss": {"clean": 0.25}}])
    {'loss': {'clean': [0.5, 0.25]}, 'seed': [0, 1]}
    """
    if values and all(isinstance(value, dict) and value.keys() == values[0].keys() and value for value in values):
        return {name: columns_of([value[name] for value in values]) for name in sorted(values[0])}
    return list(values)


def rows_of(columns: Any, count: int) -> list[Any]:
    """What the columns were made of.

    >>> rows_of({"loss": {"clean": [0.5, 0.25]}, "seed": [0, 1]}, 2)
    [{'loss': {'clean': 0.5}, 'seed': 0}, {'loss': {'clean': 0.25}, 'seed': 1}]
    """
    if isinstance(columns, dict):
        parts = {name: rows_of(part, count) for name, part in columns.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(count)]
    if not isinstance(columns, list) or len(columns) != count:
        found = f"a list of {len(columns)}" if isinstance(columns, list) else type(columns).__name__
        raise ValueError(f"expected a column of {count} values, got {found}")
    return columns


def as_text(columns: Any) -> str:
    """Strict JSON with a line for each column, so that what changed can be seen; the same bytes each time."""
    return "\n".join(_lines(columns, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield f"{indent}{json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'), sort_keys=True)}"
        return
    yield f"{indent}{{"
    for i, (name, part) in enumerate(value.items()):
        first, *rest = _lines(part, f"{indent} ")
        lines = [f"{indent} {json.dumps(name, ensure_ascii=False)}: {first.lstrip()}", *rest]
        comma = "," if i < len(value) - 1 else ""
        yield from lines[:-1]
        yield lines[-1] + comma
    yield f"{indent}}}"
