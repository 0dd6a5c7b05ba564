"""The tables of docs/optimizers.md on Muon, SOAP and Shampoo, from the record of benchmarks/matrix_optimizers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ...statistics import Comparison, compare
from ...statistics.table import markdown_table
from .effect import Effect

MEASURED = {"growth": 2, "loss": 3, "top1_accuracy": 1, "ece": 3}
"""Quantities of the tables, with their digits."""
PROJECTIONS = {"none": "none", "gradient": "before", "update": "after"}


@dataclass(frozen=True)
class Cell:
    """The runs of one optimizer on one task by projection, and their rates."""

    task: str
    optimizer: str
    rates: dict[str, float]
    runs: dict[str, list[dict[str, float]]]

    def values(self, projection: str, quantity: str) -> list[float]:
        """One value for each seed."""
        return [run[quantity] for run in self.runs[projection]]

    def compared(self, projection: str, quantity: str) -> Comparison:
        """With ⊥Grad minus without."""
        return compare(self.values("none", quantity), self.values(projection, quantity))


def cells(results: Path, rates: str) -> list[Cell]:
    """The cells of the record with ``rates`` "shared" (best without ⊥Grad) or "own" (best with this projection)."""
    record: dict[str, Any] = json.loads((results / "matrix-optimizers.json").read_text(encoding="utf-8"))
    return [
        Cell(task, name, *({each: part[key] for each, part in made[rates].items()} for key in ("rate", "runs")))
        for task, optimizers in record["cells"].items()
        for name, made in optimizers.items()
    ]


def matrix_optimizers(results: Path) -> str:
    """Means without ⊥Grad and paired differences with it, at the rate that is best without it."""
    return _table(cells(results, "shared"))


def matrix_optimizers_own(results: Path) -> str:
    """The same at the best rate of each projection, for the optimizers where that is another rate."""
    return _table([cell for cell in cells(results, "own") if len(set(cell.rates.values())) > 1])


def _table(every: list[Cell]) -> str:
    rows = [_row(cell, projection) for cell in every for projection in PROJECTIONS]
    quantities = ["growth of the matrices", "test loss ↓", "accuracy, % ↑", "ECE ↓"]
    return markdown_table(["task", "optimizer", "⊥Grad", "rate", "seeds", *quantities], rows)


def _row(cell: Cell, projection: str) -> list[str]:
    def shown(quantity: str, digits: int) -> str:
        if projection == "none":
            return f"{fmean(cell.values(projection, quantity)):.{digits}f}"
        return Effect.of(cell.compared(projection, quantity)).text(digits)

    numbers = [f"{cell.rates[projection]:g}", str(len(cell.runs[projection]))]
    return [cell.task, cell.optimizer, PROJECTIONS[projection], *numbers, *(shown(*each) for each in MEASURED.items())]


def matrix_optimizer_predictions(results: Path) -> str:
    """Each prediction of the log beside its result."""
    rows = [*_shared_predictions(cells(results, "shared")), *_own_predictions(cells(results, "own"))]
    return markdown_table(["prediction", "measured", "outcome"], rows)


def _shared_predictions(every: list[Cell]) -> Iterator[list[str]]:
    after = [cell.compared("update", "growth") for cell in every]
    before = [cell.compared("gradient", "growth") for cell in every]
    smaller = sum(each.interval.high < 0 for each in after)
    yield _outcome("After: smaller matrices than without ⊥Grad in all six", f"in {smaller}", smaller == len(every))
    between = sum(a.difference < b.difference < 0 for a, b in zip(after, before, strict=True))
    yield _outcome("Before: smaller too, by less, in all six", f"in {between}", between == len(every))
    largest = max(_share_of_loss(cell) for cell in every)
    yield _outcome("Before: test loss within 2% in all six", f"up to {largest:.0%} off", largest <= 0.02)
    digits = [cell.compared("update", "ece") for cell in every if cell.task == "digits"]
    lower = sum(each.interval.high < 0 for each in digits)
    yield _outcome("After: lower ECE on digits for all three optimizers", f"for {lower}", lower == len(digits))


def _own_predictions(every: list[Cell]) -> Iterator[list[str]]:
    larger = sum(cell.rates["update"] > cell.rates["none"] for cell in every)
    yield _outcome("After: a larger best rate in at least four of six", f"in {larger}", larger >= 4)
    losses = [cell.compared("update", "loss") for cell in every if cell.task == "digits"]
    higher = sum(each.interval.low > 0 for each in losses)
    yield _outcome("After, own rate: higher test loss on digits for all three", f"for {higher}", higher == len(losses))
    largest = max(_share_of_loss(cell) for cell in every if cell.task == "text")
    yield _outcome("Before, own rate: test loss within 5% on text", f"up to {largest:.1%} off", largest <= 0.05)


def _share_of_loss(cell: Cell) -> float:
    """The size of the change in test loss by projecting the gradient, over the loss without."""
    return abs(cell.compared("gradient", "loss").difference) / fmean(cell.values("none", "loss"))


def _outcome(prediction: str, measured: str, is_right: bool) -> list[str]:
    return [prediction, measured, "right" if is_right else "wrong"]
