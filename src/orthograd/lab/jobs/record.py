"""record.json: the config of a finished run, its results, and the hashes of its files.

A record also has a fingerprint of the run's data and network, made by `orthograd.lab.training`. A config only names
functions, whose results may change from version to version or from call to call. Runs with different fingerprints are
not comparable: they differ in more than the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..files import naming, write
from .files import JsonObject, StoreError, as_file, canonical_json, config_hash, read_object, sha256

CONFIG, RECORD, CHECKPOINT, FAILURE = "config.json", "record.json", "checkpoint.safetensors", "failure.txt"
OURS = ("config", "hash", "files", "sha256")


def write_record(folder: Path, config: JsonObject, reported: dict[str, Any]) -> dict[str, Any]:
    """Write the run's report with its config and the sizes and hashes of its tensor files; return the record."""
    if not isinstance(reported, dict):
        raise TypeError(f"expected the report of a run as a dict, got {reported!r}")
    if taken := sorted(set(OURS) & set(reported)):
        raise ValueError(f"expected a report without {', '.join(OURS)}, which the store adds; got {', '.join(taken)}")
    whole = {**reported, "config": config, "hash": config_hash(config), "files": _files(folder)}
    whole["sha256"] = _own_hash(whole)
    write(folder / RECORD, as_file(whole))
    return whole


def read_record(folder: Path) -> dict[str, Any]:
    """The record, checked against its own hash, its folder, its config and the sizes of its files."""
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
    """Raise StoreError unless the record and its config have the hashes that it states."""
    if record["sha256"] != _own_hash(record):
        raise StoreError(f"{where}: was changed after it was written: its contents do not have the hash it states")
    if record["hash"] != (expected := config_hash(record["config"])):
        raise StoreError(f"{where}: expected the hash {expected} of its config, got {record['hash']}")


def verify_hashes(folder: Path, record: dict[str, Any]) -> None:
    """Raise StoreError unless every file of the record has its SHA-256."""
    for name, expected in record["files"].items():
        if (actual := _described(folder / name)) != expected:
            raise StoreError(f"{folder / name}: expected SHA-256 {expected['sha256']}, got {actual['sha256']}")


def check_config(folder: Path) -> None:
    """Raise StoreError unless the folder is named after the hash of its config.json."""
    path = folder / CONFIG
    if (actual := config_hash(read_object(path))) != folder.name:
        raise StoreError(f"{path}: is the config of run {actual}, not of {folder.name}")


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    paths = (path for path in sorted(folder.glob("[!.]*.safetensors")) if path.name != CHECKPOINT)
    return {path.name: _described(path) for path in paths}


def _described(path: Path) -> dict[str, Any]:
    with naming(path, "be read"):
        data = path.read_bytes()
    return {"bytes": len(data), "sha256": sha256(data)}


def _check_size(path: Path, expected: int) -> None:
    what_to_do = f"delete {path.parent} to do the run again"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}; {what_to_do}") from error
    if size != expected:
        raise StoreError(f"{path}: expected {expected} bytes, got {size}; {what_to_do}")


def _own_hash(record: Mapping[str, Any]) -> str:
    content = {name: part for name, part in record.items() if name != "sha256"}
    return sha256(canonical_json(content, name="record").encode())


ROUNDING, ROUNDING_OF_LOGITS = 1e-4, 1e-2
"""Relative tolerances for other CPUs and versions of torch; logits have passed through many layers."""
SAME_EACH_TIME = "draw with a seed (torch.Generator().manual_seed(0)), or save what was drawn once and load it"
"""Advice for a data function that returns something else each time."""

Fingerprint = Mapping[str, Any]


def fingerprint_of(record: Mapping[str, Any]) -> Fingerprint:
    """Fingerprint of a record; records of earlier versions have only the number of parameters."""
    parameters = {"parameters": record["parameters"]} if "parameters" in record else {}
    fingerprint: Fingerprint = record.get("fingerprint") or parameters
    return fingerprint


def difference(one: Fingerprint, other: Fingerprint) -> str:
    """Description of the first difference between two fingerprints; empty if they agree up to rounding.

    >>> difference({"parameters": 275}, {"parameters": 17411})
    'another network: 275 parameters, and 17,411'
    >>> difference({"parameters": 275}, {})
    ''
    """
    shared = one.keys() & other.keys()
    if "data" in shared and one["data"] != other["data"]:
        return f"other data: {_words(one)}, and {_words(other)}"
    if "parameters" in shared and one["parameters"] != other["parameters"]:
        return f"another network: {one['parameters']:,} parameters, and {other['parameters']:,}"
    if "structure" not in shared:
        return ""
    if one["structure"] != other["structure"]:
        return "another network: other names, shapes or dtypes of its parameters"
    for name, sketch in one["values"].items():
        if not _agree(sketch, other["values"][name], ROUNDING):
            return f"another network: other initial values of {name}"
    if not all(_agree(*pair, ROUNDING_OF_LOGITS) for pair in zip(one["logits"], other["logits"], strict=True)):
        return "another network: the same initial values, but other logits"
    return ""


def _agree(one: Iterable[float], other: Iterable[float], tolerance: float) -> bool:
    pairs = list(zip(one, other, strict=True))
    scale = max(abs(number) for pair in pairs for number in pair)
    return all(abs(left - right) <= tolerance * scale for left, right in pairs)


def _words(fingerprint: Fingerprint) -> str:
    train, test = fingerprint["images"]
    size = " × ".join(map(str, train[1:]))
    return f"{train[0]} + {test[0]} images of {size} with SHA-256 {fingerprint['data'][:8]}…"
