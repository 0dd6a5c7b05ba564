"""A finished run on its way from one store to another, where the two share no file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import files
from ..files import StoreError, sha256
from ..record import CHECKPOINT, CONFIG, OURS, RECORD
from ..store import RunFolder

STAYS = (CONFIG, RECORD, CHECKPOINT, "lock")


@dataclass(frozen=True)
class Shipment:
    """The record of a run, and the bytes of the other files in its folder by their names."""

    record: dict[str, Any]
    files: dict[str, bytes]


def packed(folder: RunFolder) -> Shipment:
    """All that a finished run has left, once it agrees with its record."""
    folder.verify()
    paths = sorted(path for path in folder.path.rglob("*") if path.is_file())
    names = {path.relative_to(folder.path).as_posix(): path for path in paths}
    kept = {name: path for name, path in names.items() if name not in STAYS and not _is_hidden(name)}
    return Shipment(folder.record(), {name: path.read_bytes() for name, path in kept.items()})


def unpack(shipment: Shipment, folder: RunFolder) -> None:
    """Make it the result of the same run in this store, which the caller has claimed: all of it or no record."""
    _check(shipment, folder)
    for path in folder.path.glob("[!.]*.safetensors"):  # of an attempt that was not shipped
        if path.name not in shipment.files and path.name != CHECKPOINT:
            files.remove(path)
    for name, data in shipment.files.items():
        files.make_folder((folder.path / name).parent)
        files.write(folder.path / name, data)
    folder.finish({name: part for name, part in shipment.record.items() if name not in OURS})
    if (found := folder.record()["sha256"]) != shipment.record["sha256"]:
        raise StoreError(f"{folder.path / RECORD}: expected SHA-256 {shipment.record['sha256']}, got {found}")


def _check(shipment: Shipment, folder: RunFolder) -> None:
    if shipment.record["hash"] != folder.hash:
        raise StoreError(f"{folder.path}: expected the result of run {folder.hash}, got {shipment.record['hash']}")
    for name, expected in shipment.record["files"].items():
        found = sha256(shipment.files.get(name, b""))
        if found != expected["sha256"]:
            raise StoreError(
                f"{folder.path / name}: expected SHA-256 {expected['sha256']}, got {found} from the worker"
            )
    if strays := [name for name in shipment.files if name.startswith("/") or ".." in name.split("/")]:
        raise StoreError(f"{folder.path}: expected files of this folder, got {strays}")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
