"""Messages between the driver and the workers of a cluster: orders, places, and finished runs as shipments.

A shipment copies a finished run from one store to another when the two share no file system.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import files
from ..files import JsonObject, StoreError, sha256
from ..jobs import Event
from ..record import CHECKPOINT, CONFIG, OURS, RECORD
from ..store import RunFolder

STAYS = (CONFIG, RECORD, CHECKPOINT, "lock")


@dataclass(frozen=True)
class Surroundings:
    """The driver's module search path, working folder and data folder, for workers that have the same paths."""

    path: tuple[str, ...]
    folder: str
    variables: dict[str, str]

    @classmethod
    def here(cls) -> Surroundings:
        """The surroundings of this process."""
        path = tuple(os.path.abspath(entry) for entry in sys.path)
        variables = {name: os.environ[name] for name in ("ORTHOGRAD_DATA",) if name in os.environ}
        return cls(path, os.getcwd(), variables)

    def enter(self) -> None:
        """Use these surroundings in this process, as far as they exist on this machine."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path and os.path.exists(entry))
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


@dataclass(frozen=True)
class Order:
    """A run to be done by a worker."""

    job: bytes
    """Pickled: a worker can read it only if it can import the run's module."""
    config: JsonObject
    marker: Path | None
    """Marker file that a worker sees if it shares the driver's disk; None: ship the result."""
    surroundings: Surroundings
    threads: int


@dataclass(frozen=True)
class Place:
    """Machine and process of a run; the first message of a worker."""

    node: str
    process: int
    output: str | None

    def __str__(self) -> str:
        prints = f", output in {self.output}" if self.output else ""
        return f"on {self.node}, process {self.process}{prints}"


@dataclass(frozen=True)
class Unshared:
    """The worker does not see the driver's store."""


@dataclass(frozen=True)
class Shipment:
    """The record of a run, and the bytes of the other files in its folder, by name."""

    record: dict[str, Any]
    files: dict[str, bytes]


Message = Event | Place | Shipment | Unshared


def packed(folder: RunFolder) -> Shipment:
    """All files of a finished run, checked against its record."""
    folder.verify()
    paths = sorted(path for path in folder.path.rglob("*") if path.is_file())
    names = {path.relative_to(folder.path).as_posix(): path for path in paths}
    sent = {name: path for name, path in names.items() if name not in STAYS and not _is_hidden(name)}
    return Shipment(folder.record(), {name: path.read_bytes() for name, path in sent.items()})


def unpack(shipment: Shipment, folder: RunFolder) -> None:
    """Write a shipment to its run's folder in this store, which the caller has claimed; the record comes last."""
    _check(shipment, folder)
    for path in folder.path.glob("[!.]*.safetensors"):  # left by another attempt
        if path.name not in shipment.files and path.name != CHECKPOINT:
            files.remove(path)
    for name, data in shipment.files.items():
        files.make_folder((folder.path / name).parent)
        files.write(folder.path / name, data)
    folder.finish({name: part for name, part in shipment.record.items() if name not in OURS})
    if (actual := folder.record()["sha256"]) != shipment.record["sha256"]:
        raise StoreError(f"{folder.path / RECORD}: expected SHA-256 {shipment.record['sha256']}, got {actual}")


def _check(shipment: Shipment, folder: RunFolder) -> None:
    if shipment.record["hash"] != folder.hash:
        raise StoreError(f"{folder.path}: expected the result of run {folder.hash}, got {shipment.record['hash']}")
    for name, expected in shipment.record["files"].items():
        actual = sha256(shipment.files.get(name, b""))
        if actual != expected["sha256"]:
            raise StoreError(
                f"{folder.path / name}: expected SHA-256 {expected['sha256']}, got {actual} from the worker"
            )
    if strays := [name for name in shipment.files if name.startswith("/") or ".." in name.split("/")]:
        raise StoreError(f"{folder.path}: expected files of this folder, got {strays}")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
