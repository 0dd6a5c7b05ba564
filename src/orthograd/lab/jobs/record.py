"""record.json: what a finished run was, what it found, and which files belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import files
from .files import JsonObject, StoreError, as_file, canonical_json, config_hash, naming, read_object, sha256

CONFIG, RECORD, CHECKPOINT, FAILURE = "config.json", "record.json", "checkpoint.safetensors", "failure.txt"
OURS = ("config", "hash", "files", "sha256")


def write_record(folder: Path, config: JsonObject, reported: dict[str, Any]) -> dict[str, Any]:
    """Write what the run reports, beside its config and the sizes and hashes of its tensors."""
    if not isinstance(reported, dict):
        raise TypeError(f"expected what the run reports as a dict, got {reported!r}")
    if taken := sorted(set(OURS) & set(reported)):
        raise ValueError(f"expected a report without {', '.join(OURS)}, which the store adds; got {', '.join(taken)}")
    whole = {**reported, "config": config, "hash": config_hash(config), "files": _files(folder)}
    whole["sha256"] = _own_hash(whole)
    files.write(folder / RECORD, as_file(whole))
    return whole


def read_record(folder: Path) -> dict[str, Any]:
    """The record, once it agrees with itself, its folder, its config and the sizes of its files."""
    path = folder / RECORD
    record = read_object(path)
    if missing := [name for name in OURS if name not in record]:
        raise StoreError(f"{path}: expected {', '.join(OURS)}, got none of {', '.join(missing)}")
    check_hashes(record, str(path))
    if record["hash"] != folder.name:
        raise StoreError(f"{path}: belongs to run {record['hash']}, not to {folder.name}")
    check_config(folder)
    for name, expected in record["files"].items():
        _check_size(folder / name, expected["bytes"])
    return record


def check_hashes(record: Mapping[str, Any], where: str) -> None:
    """A record says by itself what its contents and its config hash to."""
    if record["sha256"] != _own_hash(record):
        raise StoreError(f"{where}: was changed after it was written: its contents do not have the hash it states")
    if record["hash"] != (found := config_hash(record["config"])):
        raise StoreError(f"{where}: expected the hash {found} of its config, got {record['hash']}")


def verify_hashes(folder: Path, record: dict[str, Any]) -> None:
    """Read every file of the record and compare its SHA-256."""
    for name, expected in record["files"].items():
        if (found := _described(folder / name)) != expected:
            raise StoreError(f"{folder / name}: expected SHA-256 {expected['sha256']}, got {found['sha256']}")


def check_config(folder: Path) -> None:
    """The folder's config.json must be the one the folder is named after."""
    path = folder / CONFIG
    if (found := config_hash(read_object(path))) != folder.name:
        raise StoreError(f"{path}: is the config of run {found}, not of {folder.name}")


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    paths = (path for path in sorted(folder.glob("[!.]*.safetensors")) if path.name != CHECKPOINT)
    return {path.name: _described(path) for path in paths}


def _described(path: Path) -> dict[str, Any]:
    with naming(path, "be read"):
        data = path.read_bytes()
    return {"bytes": len(data), "sha256": sha256(data)}


def _check_size(path: Path, expected: int) -> None:
    what_to_do = f"without {path.parent} the run is done again"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}; {what_to_do}") from error
    if size != expected:
        raise StoreError(f"{path}: expected {expected} bytes, got {size}; {what_to_do}")


def _own_hash(record: Mapping[str, Any]) -> str:
    content = {name: part for name, part in record.items() if name != "sha256"}
    return sha256(canonical_json(content, name="record").encode())
