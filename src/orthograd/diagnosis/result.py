"""What a diagnosis found: rows, warnings, and a table that prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .text import aligned, percent, signed

HEADER = ("parameter", "shape", "removes", "radial", "cosine", "‖w‖", "‖g‖", "⊥Grad", "why")


@dataclass(frozen=True)
class Row:
    """One parameter. What has no value (the cosine with a zero weight) is None.

    ``radial`` is cos², the radial share of the parameter's own gradient energy ‖g‖². ``removed`` is what ⊥Grad would
    take out here as a share of the energy of the whole gradient. ``action`` is act, leave or freeze, and ``reason``
    says why. ``kind`` is a key of `orthograd.diagnosis.scaling.MEANINGS`, None where it was not measured.
    """

    name: str
    shape: tuple[int, ...]
    weight_norm: float
    gradient_norm: float | None
    cosine: float | None
    radial: float | None
    removed: float
    action: str
    reason: str
    kind: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as the table prints it."""
        return (
            self.name,
            "×".join(map(str, self.shape)) or "–",
            percent(self.removed),
            percent(self.radial),
            signed(self.cosine),
            f"{self.weight_norm:.3g}",
            "–" if self.gradient_norm is None else f"{self.gradient_norm:.2e}",
            {"act": "acts", "leave": "leaves it", "freeze": "FREEZES"}[self.action],
            self.reason,
        )


@dataclass(frozen=True)
class Diagnosis:
    """What `orthograd.diagnose` returns. ``print`` shows it as a table, what ⊥Grad would remove most of first."""

    loss: float
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    @property
    def removed(self) -> float:
        """The share of the whole gradient's energy that ⊥Grad would remove."""
        return sum(row.removed for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of a parameter by its name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"expected a parameter among {', '.join(row.name for row in self.rows)}, got {name}")

    def as_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON: what is not finite is None."""
        rows = [{**_finite(asdict(row)), "shape": list(row.shape)} for row in self.rows]
        whole = _finite({"loss": self.loss, "removed": self.removed})
        return {**whole, "rows": rows, "warnings": list(self.warnings)}

    def __str__(self) -> str:
        table = aligned(HEADER, [row.cells for row in self.rows], left=(0, 1, 7, 8))
        return "\n".join([self._headline, "", table, *_listed(self.warnings)])

    @property
    def _headline(self) -> str:
        count = {action: sum(row.action == action for row in self.rows) for action in ("act", "freeze")}
        frozen = f" and freezes {count['freeze']}" if count["freeze"] else ""
        said = (
            f"⊥Grad would remove {percent(self.removed)} of the gradient's energy (loss {self.loss:.4g}); "
            f"it acts on {count['act']}{frozen} of {len(self.rows)} parameters"
        )
        if not self.removed:
            return f"{said}."
        most = max(self.rows, key=lambda row: row.removed)
        return f"{said}, and {percent(most.removed / self.removed)} of what it removes lies in {most.name}."


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _listed(warnings: Sequence[str]) -> list[str]:
    return ["", *(f"! {warning}" for warning in warnings)] if warnings else []
