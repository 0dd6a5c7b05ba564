"""Records committed with the source: all runs of a setting and a method in one small file.

Records of the same shape are stored as columns: every name once, with a list of one value per run. This is lossless,
and reading checks each record's hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import write_text
from .files import StoreError, canonical_json, read_object
from .record import check_hashes

FORMATS = "runs of orthograd as columns, 1", "runs of orthograd as columns, 2"
"""The second has records of more than one shape, each in separate columns: later versions record more of a run."""
Record = Mapping[str, Any]


def bundle_path(folder: Path, setting: str, method: str) -> Path:
    """Path of the bundle of a setting and a method."""
    return folder / f"{setting}-{method}.json"


def write_bundle(path: Path, records: Iterable[Record]) -> Path:
    """Write records in the order of their seeds; the same records give the same bytes. Return the path."""
    whole = sorted((json.loads(canonical_json(dict(record))) for record in records), key=_order)
    for record in whole:
        _check(path, record)
    shapes: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for record in whole:
        shapes.setdefault(tuple(record), []).append(record)
    columns: dict[str, Any] = {}
    for records_alike in reversed([*shapes.values()] or [[]]):
        more = {"more": columns} if columns else {}
        columns = {"count": len(records_alike), "runs": columns_of(records_alike), **more}
    if _rows(columns) != whole:
        raise ValueError(f"{path}: expected records that columns restore exactly, got others")
    columns = {"format": FORMATS[1] if "more" in columns else FORMATS[0], **columns}
    return write_text(path, as_text(columns))


def read_bundle(path: Path) -> list[dict[str, Any]]:
    """The records in the order of their seeds; StoreError, naming the file, if one was changed."""
    columns = read_object(path)
    if columns.get("format") not in FORMATS:
        expected = " or ".join(map(repr, FORMATS))
        raise StoreError(f"{path}: expected the format {expected}, got {columns.get('format')!r}")
    try:
        records = _rows(columns)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: expected columns of runs, got {error!r}") from error
    for record in records:
        _check(path, record)
    return records


def read_bundles(folder: Path) -> dict[str, dict[str, Any]]:
    """All records in a folder, by hash."""
    records = [record for path in sorted(folder.glob("*.json")) for record in read_bundle(path)]
    return {record["hash"]: record for record in records}


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Records of all shapes, in the order of their seeds."""
    rows = rows_of(columns["runs"], int(columns["count"]))
    return sorted(rows + (_rows(columns["more"]) if "more" in columns else []), key=_order)


def _check(path: Path, record: Record) -> None:
    if missing := [name for name in ("config", "hash", "sha256", "metrics") if name not in record]:
        raise StoreError(f"{path}: expected whole records, got one without {', '.join(missing)}")
    check_hashes(record, f"{path}: the record of run {record['hash']}")


def _order(record: Record) -> tuple[int, str]:
    return int(record["config"]["seed"]), str(record["hash"])


def columns_of(values: Sequence[Any]) -> Any:
    """Mappings with the same keys become one mapping of columns; anything else a list.

    >>> columns_of([{"seed": 0, "loss": {"clean": 0.5}}, {"seed": 1, "loss": {"clean": 0.25}}])
    {'loss': {'clean': [0.5, 0.25]}, 'seed': [0, 1]}
    """
    if values and all(isinstance(value, dict) and value.keys() == values[0].keys() and value for value in values):
        return {name: columns_of([value[name] for value in values]) for name in sorted(values[0])}
    return list(values)


def rows_of(columns: Any, count: int) -> list[Any]:
    """Inverse of `columns_of`.

    >>> rows_of({"loss": {"clean": [0.5, 0.25]}, "seed": [0, 1]}, 2)
    [{'loss': {'clean': 0.5}, 'seed': 0}, {'loss': {'clean': 0.25}, 'seed': 1}]
    """
    if isinstance(columns, dict):
        parts = {name: rows_of(part, count) for name, part in columns.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(count)]
    if not isinstance(columns, list) or len(columns) != count:
        actual = f"a list of {len(columns)}" if isinstance(columns, list) else type(columns).__name__
        raise ValueError(f"expected a column of {count} values, got {actual}")
    return columns


def as_text(columns: Any) -> str:
    """Strict JSON with one line per column, for readable diffs; the same bytes each time."""
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
