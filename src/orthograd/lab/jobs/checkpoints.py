"""Checkpoints of a run: one that survives a crash of the machine, and two newer ones that survive that of the process.

Flushing to disk takes longer than a short epoch, and a killed process loses nothing that it has written, flushed or
not. So the file that survives a power cut is replaced every few seconds. In between, two slots are written in turn:
whenever the process is killed, one of them is whole and at most one epoch old.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import files
from .files import StoreError, as_bytes, canonical_json, parsed, read
from .record import CHECKPOINT

FLUSH_EVERY = 2.0  # seconds
SLOTS = (".checkpoint-0", ".checkpoint-1")
DIGEST = hashlib.sha256().digest_size

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


class Checkpoints:
    """The checkpoints of one run; the newest whole one is loaded."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run
        self._number: int | None = None
        self._flushed = -FLUSH_EVERY

    @property
    def exist(self) -> bool:
        """True if there is a checkpoint, whole or damaged."""
        return any(files.exists(path) for path in self._paths)

    def save(self, content: dict[str, Tensor], state: Any) -> None:
        """Save these tensors and this JSON data as the newest checkpoint."""
        if self._number is None:
            newest = self._newest()
            self._number = newest[1]["number"] if newest else 0
        self._number += 1
        note = canonical_json({"run": self._run, "number": self._number, "state": state}, name="checkpoint")
        data = as_bytes(content, note)
        if time.monotonic() - self._flushed < FLUSH_EVERY:
            _write_slot(self._folder / SLOTS[self._number % 2], data)
        else:
            files.write(self._folder / CHECKPOINT, data)
            self._flushed = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], Any] | None:
        """The tensors and the state last saved, or None."""
        newest = self._newest()
        return (newest[0], newest[1]["state"]) if newest else None

    def remove(self) -> None:
        """Delete all checkpoints."""
        for path in self._paths:
            files.remove(path)

    @property
    def _paths(self) -> list[Path]:
        return [self._folder / name for name in (*SLOTS, CHECKPOINT)]

    def _newest(self) -> Checkpoint | None:
        checkpoints = [self._checked(path, *_read_slot(path)) for path in self._paths[:2] if files.exists(path)]
        checkpoints.append(self._checked(self._paths[2], *_read(self._paths[2])))
        return max((one for one in checkpoints if one), key=lambda one: one[1]["number"], default=None)

    def _checked(self, path: Path, content: dict[str, Tensor] | None, text: str | None) -> Checkpoint | None:
        if content is None:
            return None
        note = json.loads(text) if text else {}
        if note.get("run") != self._run:
            raise StoreError(f"{path}: is a checkpoint of run {note.get('run')}, not of {self._run}")
        return content, note


def _read(path: Path) -> tuple[dict[str, Tensor] | None, str | None]:
    return read(path) if files.exists(path) else (None, None)


def _write_slot(path: Path, data: bytes) -> None:
    """Write a slot in place, after a digest that detects a half-written one."""
    with files.naming(path, "be written"), open(path, "r+b" if path.exists() else "wb") as file:
        file.write(hashlib.sha256(data).digest() + data)
        file.truncate()


def _read_slot(path: Path) -> tuple[dict[str, Tensor] | None, str | None]:
    """Tensors and text of a slot; None if it is half-written."""
    with files.naming(path, "be read"):
        data = path.read_bytes()
    whole = hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST]
    return parsed(path, data[DIGEST:]) if whole else (None, None)
