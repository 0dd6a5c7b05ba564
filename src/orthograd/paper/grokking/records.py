"""Records of rows: a small JSON file each, with the curves of every seed, and what they say of a seed."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...lab.files import write_text
from ...lab.versions import versions
from .rows import ROWS, Row
from .training import Curves, trained

GENERALIZES = 0.95
"""Test accuracy from which a seed counts as one that generalizes."""


@dataclass(frozen=True)
class Record:
    """The curves of a row's seeds, and what they were made with."""

    row: Row
    seeds: list[int]
    steps: list[int]
    curves: Curves
    made: dict[str, Any]

    def at(self, measure: str, step: int | None = None) -> list[float]:
        """The value of each seed at the last recorded step, or at the last one up to ``step``."""
        last = len(self.steps) - 1 if step is None else sum(each <= step for each in self.steps) - 1
        return [float("nan") if (value := curve[last]) is None else value for curve in self.curves[measure]]

    def steps_to_generalize(self) -> list[int | None]:
        """The first recorded step of each seed with a test accuracy of at least 95%; None if there is none."""
        return [
            next((step for step, value in zip(self.steps, curve, strict=True) if (value or 0) >= GENERALIZES), None)
            for curve in self.curves["test_accuracy"]
        ]

    def generalizes_at_the_end(self) -> list[bool]:
        """True for each seed with a test accuracy of at least 95% at the last recorded step."""
        return [value >= GENERALIZES for value in self.at("test_accuracy")]

    def as_text(self) -> str:
        """JSON with a line for each seed and measure."""
        whole = {"row": self.row.as_dict(), "made": self.made, "seeds": self.seeds, "steps": self.steps}
        curves = ",\n".join(f'"{name}": [\n{_lines(curves)}]' for name, curves in self.curves.items())
        return f'{json.dumps(whole, allow_nan=False)[:-1]},\n"curves": {{\n{curves}}}}}\n'


def _lines(curves: Sequence[Sequence[float | None]]) -> str:
    return ",\n".join(json.dumps(curve, separators=(",", ":"), allow_nan=False) for curve in curves)


def recorded(
    row: Row, seeds: Sequence[int], device: torch.device, report: Callable[[int], None] = lambda step: None
) -> Record:
    """Train a row; its record."""
    start = time.perf_counter()
    steps, curves = trained(row, seeds, device, report)
    made = {"seconds": round(time.perf_counter() - start, 1), "device": _name(device), "versions": versions()}
    return Record(row, list(seeds), steps, curves, made)


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def write_record(record: Record, folder: Path) -> Path:
    """Write the record into a folder, under the name of its row; its path."""
    return write_text(folder / f"{record.row.name}.json", record.as_text())


def read_records(folders: Iterable[Path]) -> dict[str, Record]:
    """The records in these folders by row, in the order of `ROWS`; of two, the one with more seeds.

    A record of other settings than today's row of that name is left out.
    """
    records: dict[str, Record] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        record = read_record(path)
        if record is not None and len(record.seeds) > len(getattr(records.get(record.row.name), "seeds", ())):
            records[record.row.name] = record
    return {name: records[name] for name in ROWS if name in records}


def read_record(path: Path) -> Record | None:
    """The record in a file; None if its settings are not those of a row."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        row = ROWS.get(data["row"]["name"])
        if row is None or row.as_dict() != data["row"]:
            return None
        return Record(row, data["seeds"], data["steps"], data["curves"], data["made"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a record of orthograd reproduce grokking, got {error!r}") from error


def missing(rows: Iterable[Row], seeds: Sequence[int], records: dict[str, Record]) -> list[Row]:
    """The rows without a record of these seeds."""
    return [row for row in rows if not {*seeds} <= {*getattr(records.get(row.name), "seeds", ())}]
