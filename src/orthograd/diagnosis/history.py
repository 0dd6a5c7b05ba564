"""The steps that a `Recorder` measured, as numbers and as a table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .result import aligned, percent, signed

HEADER = ("parameter", "of all", "radial", "cosine", "update", "‖w‖ first", "‖w‖ last", "drift")


@dataclass(frozen=True)
class Snapshot:
    """The sums of one step, one table per device. A row: ‖w‖², ⟨Δ, w⟩ twice, ‖Δ‖², then the same with g."""

    step: int
    tables: list[tuple[list[str], Tensor]]

    @classmethod
    def of(cls, step: int, names: Sequence[str], rows: Sequence[Tensor]) -> Snapshot:
        """A snapshot with one small tensor per device instead of one per parameter."""
        by_device: dict[torch.device, tuple[list[str], list[Tensor]]] = defaultdict(lambda: ([], []))
        for name, row in zip(names, rows, strict=True):
            by_device[row.device][0].append(name)
            by_device[row.device][1].append(row)
        return cls(step, [(members, torch.stack(sums)) for members, sums in by_device.values()])

    @cached_property
    def sums(self) -> dict[str, Sums]:
        """The numbers by parameter. The first access waits for the device."""
        return {
            name: Sums.of(row) for names, table in self.tables for name, row in zip(names, table.tolist(), strict=True)
        }


class Sums(NamedTuple):
    """Inner products of a parameter w, its gradient g and its update Δ at one step."""

    square: float
    update_product: float
    update_square: float
    gradient_product: float
    gradient_square: float

    @classmethod
    def of(cls, row: Sequence[float]) -> Sums:
        """The sums in a row of a snapshot's table."""
        square, _, update_product, update_square, _, _, gradient_product, gradient_square = row
        return cls(square, update_product, update_square, gradient_product, gradient_square)

    @property
    def cosine(self) -> float:
        """⟨g, w⟩ / ‖g‖‖w‖."""
        return _cosine(self.gradient_product, self.gradient_square, self.square)

    @property
    def update_cosine(self) -> float:
        """⟨Δ, w⟩ / ‖Δ‖‖w‖."""
        return _cosine(self.update_product, self.update_square, self.square)


class Moment(NamedTuple):
    """The sums of a parameter at one step and at its first step, and the energy ‖g‖² of all gradients."""

    now: Sums
    first: Sums
    energy: float


QUANTITIES: dict[str, Callable[[Moment], float]] = {
    "cosine": lambda at: at.now.cosine,
    "radial": lambda at: at.now.cosine**2,
    "removed": lambda at: at.now.cosine**2 * at.now.gradient_square / at.energy,
    "gradient_norm": lambda at: math.sqrt(at.now.gradient_square),
    "weight_norm": lambda at: math.sqrt(at.now.square),
    "drift": lambda at: math.sqrt(at.now.square / at.first.square) - 1 if at.first.square else math.nan,
    "update_cosine": lambda at: at.now.update_cosine,
}
"""Quantities of a parameter at a recorded step, by name.

``cosine``: between gradient and weight. ``radial``: cos², the radial share of the gradient's energy. ``removed``: the
radial part as a share of the whole gradient's energy. ``gradient_norm`` and ``weight_norm``: ‖g‖ and ‖w‖ before the
step. ``drift``: ‖w‖ / ‖w₀‖ − 1. ``update_cosine``: between the update and the weight.
"""
# Below this share of the whole gradient's norm a gradient is rounding error, and its angle is noise.
ROUNDING = 1e-6


class History:
    """The snapshots of a recorder, by parameter."""

    def __init__(self, snapshots: Sequence[Snapshot]):
        self.snapshots, self.steps = snapshots, [snapshot.step for snapshot in snapshots]
        self.names = list(dict.fromkeys(name for snapshot in snapshots for name in snapshot.sums))
        self._first = {name: next(s.sums[name] for s in snapshots if name in s.sums) for name in self.names}

    def values(self, quantity: str) -> dict[str, list[float | None]]:
        """One quantity of every parameter at every recorded step; None if it is missing or undefined."""
        if quantity not in QUANTITIES:
            raise ValueError(f"expected one of the quantities {', '.join(QUANTITIES)}, got {quantity}")
        return {name: [self._value(name, i, quantity) for i in range(len(self.steps))] for name in self.names}

    def drawn(self, quantity: str) -> dict[str, list[float | None]]:
        """`values` without the angles of gradients that are only rounding error, for figures."""
        values = self.values(quantity)
        if quantity not in ("cosine", "radial"):
            return values
        norms = self.values("gradient_norm")
        limits = [ROUNDING * math.sqrt(energy) for energy in self._energies]
        return {
            name: [
                value if norm is not None and norm > limit else None
                for value, norm, limit in zip(row, norms[name], limits, strict=True)
            ]
            for name, row in values.items()
        }

    @property
    def parameters(self) -> dict[str, dict[str, list[float | None]]]:
        """All quantities, by parameter."""
        by_quantity = {quantity: self.values(quantity) for quantity in QUANTITIES}
        return {name: {quantity: by_quantity[quantity][name] for quantity in QUANTITIES} for name in self.names}

    def table(self) -> str:
        """The table of `Recorder.table`; "of all" is the radial part as a share of the whole gradient's energy."""
        last = self.snapshots[-1].sums
        shares = {name: self._value(name, -1, "removed") for name in last}
        rows = [self._row(name, last[name], shares[name]) for name in sorted(last, key=lambda n: -(shares[n] or 0.0))]
        return f"step {self.steps[-1]}\n\n{aligned(HEADER, rows)}"

    def _row(self, name: str, last: Sums, share: float | None) -> tuple[str, ...]:
        drift = self._value(name, -1, "drift")
        return (
            name,
            percent(share),
            percent(last.cosine**2),
            signed(last.cosine),
            signed(last.update_cosine),
            f"{math.sqrt(self._first[name].square):.4g}",
            f"{math.sqrt(last.square):.4g}",
            "–" if drift is None else f"{100 * drift:+.3g}%",
        )

    @cached_property
    def _energies(self) -> list[float]:
        known = ([sums.gradient_square for sums in snapshot.sums.values()] for snapshot in self.snapshots)
        return [sum(value for value in values if math.isfinite(value)) or math.nan for values in known]

    def _value(self, name: str, index: int, quantity: str) -> float | None:
        if name not in self.snapshots[index].sums:
            return None
        at = Moment(self.snapshots[index].sums[name], self._first[name], self._energies[index])
        value = QUANTITIES[quantity](at)
        return value if math.isfinite(value) else None


def _cosine(product: float, square: float, weight_square: float) -> float:
    """The cosine; NaN if a norm is zero or anything is not finite."""
    norms = math.sqrt(square) * math.sqrt(weight_square) if square >= 0 and weight_square >= 0 else math.nan
    return product / norms if norms and math.isfinite(norms) else math.nan
