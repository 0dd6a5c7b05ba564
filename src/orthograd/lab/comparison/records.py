"""The records of runs in a folder, with or without the tensors that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..jobs.bundles import FORMATS
from ..jobs.files import StoreError, read_object
from ..jobs.record import check_hashes

NEEDED = ("config", "hash", "metrics", "after_temperature", "losses", "sha256")


def stored_records(folder: Path) -> list[dict[str, Any]]:
    """Every record in a comparison, a store or a folder of JSON files; StoreError where one is not sound."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: expected a folder of runs, got {'a file' if folder.exists() else 'nothing'}")
    places = store_in(folder), folder
    for paths in (sorted(places[0].glob("*/record.json")), sorted(places[1].glob("*.json"))):
        records = [record for path in paths if (record := _read(path)) is not None]
        if records:
            return records
    raise StoreError(f"{folder}: expected records of finished runs, got none")


def store_in(folder: Path) -> Path:
    """The folder that holds the runs: that of a comparison has them in `runs`."""
    return folder / "runs" if (folder / "runs").is_dir() else folder


def files_gone(folder: Path) -> list[Path]:
    """Files of tensors that the records of finished runs name and that are no longer beside them."""
    files = (
        path.parent / name
        for path in sorted(store_in(folder).glob("*/record.json"))
        for name in read_object(path).get("files", {})
    )
    return [file for file in files if not file.exists()]


def _read(path: Path) -> dict[str, Any] | None:
    """A sound record, or None where the file is something else, such as the summary of a comparison."""
    record = read_object(path)
    if record.get("format") in FORMATS:
        raise StoreError(
            f"{path}: expected the record of one run, got those of many; "
            f"`orthograd reproduce all --rebuild --export {path.parent}` makes a page of them"
        )
    if "sha256" not in record and path.name != "record.json":
        return None
    if missing := [name for name in NEEDED if name not in record]:
        raise StoreError(f"{path}: expected the record of a comparison's run, got none of {', '.join(missing)}")
    check_hashes(record, str(path))
    return record
