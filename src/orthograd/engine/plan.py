"""Shared by all engines: pairs of gradient and weight, plans that project them, and tables of moments.

⊥Grad needs three numbers (moments) of a gradient g and a weight w, which may be split into pieces:

    B = ‖w‖²        c = ⟨g, w⟩ / B        R = ‖g − c w‖² = ‖g⊥‖²

These are the least-squares fit of g by w. R is stored instead of ‖g‖² = R + c²B because the difference ‖g‖² − c²B
cancels when g is nearly parallel to w. Pieces merge as in parallel variance (Chan, Golub and LeVeque): B adds, c
averages with weights B, and R adds after each residual is moved to the common c. Only positive terms are added, so
nothing cancels across chunks, tensors or ranks.

A table of moments holds one row (B, c, R) per piece, in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    """A gradient and its weight: real, strided, of the same shape, on one device."""

    gradient: Tensor
    weight: Tensor


Segment = Sequence[Pair]
"""Pairs that are projected together as one vector."""


class Plan(ABC):
    """Segments that one engine projects together, repeatedly. Each call reads the current values of the tensors."""

    holds_addresses: ClassVar[bool] = False
    """True if the plan identifies tensors by address only, and so serves other tensors at the same addresses."""

    @abstractmethod
    def project_(self) -> None:
        """Project each gradient in place."""

    def moved(self, addresses: Mapping[int, int], *, in_place: bool = False) -> Plan | None:
        """The same plan for moved gradients, given new addresses by old ones; None if a new plan is needed.

        With ``in_place`` it is this plan, without new memory on the device. It then no longer serves the old addresses.
        """
        return None


class VectorPlan(Plan):
    """A plan that projects each segment as one vector, in two passes; between them ranks can reduce their moments."""

    @abstractmethod
    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, merge: bool = False) -> None:
        """With ``merge`` the table has one row per segment; without, an engine may merge in its second pass."""

    @abstractmethod
    def measure(self) -> Tensor:
        """The table of moments. Gradients are not changed."""

    @abstractmethod
    def apply_(self, table: Tensor) -> None:
        """Project each gradient in place, given a table as `measure` returns it."""

    def project_(self) -> None:
        """Project each gradient in place."""
        self.apply_(self.measure())


def merged(table: Tensor) -> Tensor:
    """The merged row (B, c, R) of all pieces of a table."""
    sums = weighted(table).sum(0)
    common = averaged(sums)
    return torch.stack([sums[0], common, residual_about(table, common).sum()])


def weighted(table: Tensor) -> Tensor:
    """(B, B c) per row: the additive form."""
    square, coefficient, _ = table.unbind(1)
    return torch.stack([square, square * coefficient], dim=1)


def averaged(sums: Tensor) -> Tensor:
    """c from summed (B, B c); zero for a zero weight, which has no direction."""
    square, product = sums.unbind(-1)
    return product / torch.where(square == 0, 1, square)


def residual_about(table: Tensor, common: Tensor) -> Tensor:
    """‖g − common · w‖² per row: R + B (c − common)²."""
    square, coefficient, residual = table.unbind(1)
    return residual + square * (coefficient - common) ** 2


class Correction(NamedTuple):
    """Per row of a table: the projected gradient is ``scale`` · (g − ``coefficient`` · w)."""

    coefficient: Tensor
    scale: Tensor


def correction(table: Tensor, *, renormalize: bool, rounding: float) -> Correction:
    """The corrections for the gradients of a table of moments.

    The scale is ‖g‖ / ‖g⊥‖ or 1, and zero where ‖g⊥‖ ≤ rounding · ‖g‖ (definition 1, step 3). A row that is
    not finite gets coefficient 0 and scale 1, which leave its gradient unchanged.
    """
    square, coefficient, residual = table.unbind(1)
    gradient_square = residual + square * coefficient**2
    is_zero = residual <= rounding**2 * gradient_square
    scale = (gradient_square / torch.where(is_zero, 1, residual)).sqrt() if renormalize else torch.ones_like(square)
    scale = torch.where(is_zero, 0, scale)
    is_finite = gradient_square.isfinite() & scale.isfinite()
    return Correction(torch.where(is_finite, coefficient, 0), torch.where(is_finite, scale, 1))
