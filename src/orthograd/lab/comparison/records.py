"""The records of runs, read from a folder, and the metrics in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..jobs.bundles import FORMATS
from ..jobs.files import StoreError, read_object
from ..jobs.record import check_hashes

Record = Mapping[str, Any]
Metrics = Mapping[str, Any]

NEEDED = ("config", "hash", "metrics", "after_temperature", "losses", "sha256")


def stored_records(folder: Path) -> list[dict[str, Any]]:
    """All records in a comparison, a store or a folder of JSON files; StoreError where one is broken."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: expected a folder of runs, got {'a file' if folder.exists() else 'nothing'}")
    for paths in (store_in(folder).glob("*/record.json"), folder.glob("*.json")):
        records = [record for path in sorted(paths) if (record := _read(path)) is not None]
        if records:
            return records
    raise StoreError(f"{folder}: expected records of finished runs, got none")


def store_in(folder: Path) -> Path:
    """The folder of the runs: `runs` inside the folder of a comparison, or the folder itself."""
    return folder / "runs" if (folder / "runs").is_dir() else folder


def files_gone(folder: Path) -> list[Path]:
    """Tensor files that records of finished runs name but that no longer exist."""
    files = (
        path.parent / name
        for path in sorted(store_in(folder).glob("*/record.json"))
        for name in read_object(path).get("files", {})
    )
    return [file for file in files if not file.exists()]


def _read(path: Path) -> dict[str, Any] | None:
    """The record in a file, or None where the file is not a record, such as comparison.json."""
    record = read_object(path)
    if record.get("format") in FORMATS:
        raise StoreError(
            f"{path}: expected the record of one run, got a bundle of many; "
            f"`orthograd reproduce all --rebuild --export {path.parent}` makes a page of it"
        )
    if "sha256" not in record and path.name != "record.json":
        return None
    if missing := [name for name in NEEDED if name not in record]:
        raise StoreError(f"{path}: expected the record of a comparison's run, got none of {', '.join(missing)}")
    check_hashes(record, str(path))
    return record


def is_number(value: Any) -> bool:
    """True if a metric is neither undefined (None) nor infinite ("inf").

    >>> is_number(0.5), is_number(None), is_number("inf")
    (True, False, False)
    """
    return isinstance(value, (int, float)) and math.isfinite(value)


def duration(seconds: float) -> str:
    """Seconds in a readable unit.

    >>> [duration(seconds) for seconds in (0.534, 59.3, 90, 52_547, 3e5, 1e9)]
    ['0.534 s', '59.3 s', '1.5 min', '14.6 h', '3.47 days', '11,574 days']
    """
    units = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
    unit = next((unit for unit, size in units.items() if seconds >= (2 if unit == "days" else 1) * size), "s")
    amount = seconds / units[unit]
    return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:,.0f} {unit}"


def image_sets(record: Record) -> list[str]:
    """The names of the corrupted image sets, such as "noise.3", sorted."""
    return sorted(name for name in record["metrics"] if name != "clean")


def shifts(record: Record) -> list[str]:
    """The names of the corruptions, sorted.

    >>> shifts({"metrics": {"clean": {}, "noise.1": {}, "noise.2": {}, "blur.1": {}}})
    ['blur', 'noise']
    """
    return list(dict.fromkeys(name.rpartition(".")[0] for name in image_sets(record)))


def clean(record: Record) -> Metrics:
    """The metrics of clean test samples."""
    metrics: Metrics = record["metrics"]["clean"]
    return metrics


def after_temperature(record: Record) -> Metrics:
    """The metrics of clean test samples after temperature scaling."""
    metrics: Metrics = record["after_temperature"]["metrics"]
    return metrics


def shifted(record: Record) -> Metrics:
    """Each metric averaged over all corruptions and severities; None where a value is not a number."""
    return {name: mean_over_shifts(record, name) for name in record["metrics"][image_sets(record)[0]]}


def shifted_after_temperature(record: Record) -> Metrics:
    """`shifted` after temperature scaling; empty in records of versions that did not evaluate it."""
    sets = list((record["after_temperature"] or {}).get("shifted", {}).values())
    return {name: _mean(each[name] for each in sets) for name in (sets[0] if sets else ())}


def mean_over_shifts(record: Record, metric: str) -> float | None:
    """A metric averaged over all corruptions and severities; None without any, or where a value is not a number."""
    return _mean(record["metrics"][name][metric] for name in image_sets(record))


def by_severity(records: Sequence[Record], metric: str, *, shift: str | None = None) -> list[list[float]]:
    """For each run, the metric at severity 0 (clean), 1, 2, …, of one shift or averaged over all; NaN if undefined."""
    curves = []
    for record in records:
        levels: dict[int, list[Any]] = {0: [clean(record)[metric]]}
        for name in image_sets(record):
            corruption, _, level = name.rpartition(".")
            if shift in (None, corruption):
                levels.setdefault(int(level), []).append(record["metrics"][name][metric])
        curves.append([_number(_mean(levels[level])) for level in sorted(levels)])
    return curves


def _mean(values: Iterable[Any]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known and all(map(is_number, known)) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
