"""Records that travel with the source: all runs of a setting and an arm in one small file, whole and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .columns import as_text, columns_of, rows_of
from .files import StoreError, canonical_json, read_object, write
from .record import check_hashes

FORMATS = "runs of orthograd as columns, 1", "runs of orthograd as columns, 2"
"""The second has more than one shape of records, each in columns of its own: later versions note more about a run."""
Record = Mapping[str, Any]


def bundle_path(folder: Path, setting: str, arm: str) -> Path:
    """Where the runs of a setting and an arm lie."""
    return folder / f"{setting}-{arm}.json"


def write_bundle(path: Path, records: Iterable[Record]) -> Path:
    """Write records by seed; the same records give the same bytes, and each comes back as it was."""
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
        raise ValueError(f"{path}: expected records that columns give back, got others")
    columns = {"format": FORMATS[1] if "more" in columns else FORMATS[0], **columns}
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, as_text(columns).encode())
    return path


def read_bundle(path: Path) -> list[dict[str, Any]]:
    """The records, in the order of their seeds; StoreError, naming the file, where one is not as it was written."""
    found = read_object(path)
    if found.get("format") not in FORMATS:
        raise StoreError(f"{path}: expected the format {' or '.join(map(repr, FORMATS))}, got {found.get('format')!r}")
    try:
        records = _rows(found)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: expected columns of runs, got {error!r}") from error
    for record in records:
        _check(path, record)
    return records


def read_bundles(folder: Path) -> dict[str, dict[str, Any]]:
    """Every record in a folder by its hash."""
    records = [record for path in sorted(folder.glob("*.json")) for record in read_bundle(path)]
    return {record["hash"]: record for record in records}


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By seed, of whatever shape."""
    rows = rows_of(columns["runs"], int(columns["count"]))
    return sorted(rows + (_rows(columns["more"]) if "more" in columns else []), key=_order)


def _check(path: Path, record: Record) -> None:
    if missing := [name for name in ("config", "hash", "sha256", "metrics") if name not in record]:
        raise StoreError(f"{path}: expected whole records, got one without {', '.join(missing)}")
    check_hashes(record, f"{path}: the record of run {record['hash']}")


def _order(record: Record) -> tuple[int, str]:
    return int(record["config"]["seed"]), str(record["hash"])
