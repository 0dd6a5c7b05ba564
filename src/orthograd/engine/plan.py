"""What every engine shares: pairs of gradient and weight, plans that project them, and the table between two passes.

Three numbers say all that ⊥Grad needs of a gradient g and a weight w, however the two are cut in pieces:

    B = ‖w‖²        c = ⟨g, w⟩ / B        R = ‖g − c w‖² = ‖g⊥‖²

These are the least-squares fit of g by w. R is carried instead of ‖g‖² = R + c²B because the difference
‖g‖² − c²B cancels to nothing when g is nearly parallel to w. Pieces merge as in parallel variance
(Chan, Golub and LeVeque): B adds, c averages with weights B, and R adds after each piece's residual has been
moved to the common c. Only positive terms are added, so nothing cancels, across chunks, tensors or ranks.

A table of moments holds one row (B, c, R) per piece, in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    """A gradient and the weight it belongs to: real, strided, of one shape, on one device."""

    gradient: Tensor
    weight: Tensor


Segment = Sequence[Pair]
"""The pairs that are projected together, as one vector."""


class Plan(ABC):
    """Some segments that one engine projects together, as often as it is asked to.

    Each plan reads the tensors themselves at every call, whatever they hold then.
    """

    holds_addresses: ClassVar[bool] = False
    """Whether it knows its tensors by their addresses alone, so that it serves others that come to lie there."""

    @abstractmethod
    def project_(self) -> None:
        """Replace each gradient by what ⊥Grad makes of it."""

    def moved(self, addresses: Mapping[int, int]) -> Plan | None:
        """The same plan for gradients that lie elsewhere, by their old addresses; None if it must be made anew."""
        return None


class VectorPlan(Plan):
    """A plan for segments that are one vector each, in two passes, between which ranks can add up their moments.

    Plans that project each row of a tensor for itself need no second pass and have none.
    """

    @abstractmethod
    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, merge: bool = False) -> None:
        """With ``merge`` the table has one row per segment; without, an engine may leave that to its second pass."""

    @abstractmethod
    def measure(self) -> Tensor:
        """The table of moments. It changes no gradient."""

    @abstractmethod
    def apply_(self, table: Tensor) -> None:
        """Project every gradient in place, by a table of the form that `measure` returns."""

    def project_(self) -> None:
        """Replace each gradient by what ⊥Grad makes of it."""
        self.apply_(self.measure())


def merged(table: Tensor) -> Tensor:
    """The row (B, c, R) of all the pieces of a table together."""
    sums = weighted(table).sum(0)
    common = averaged(sums)
    return torch.stack([sums[0], common, residual_about(table, common).sum()])


def weighted(table: Tensor) -> Tensor:
    """(B, B c) per row: what adds up."""
    square, coefficient, _ = table.unbind(1)
    return torch.stack([square, square * coefficient], dim=1)


def averaged(sums: Tensor) -> Tensor:
    """c from summed (B, B c); zero where the weight is zero, which has no direction."""
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
    """What to do to the gradients that a table describes.

    The scale is ‖g‖ / ‖g⊥‖ or 1, and zero where ‖g⊥‖ ≤ rounding · ‖g‖ (definition 1, step 3). A row that is
    not finite gets coefficient 0 and scale 1, which leave its gradient as it is.
    """
    square, coefficient, residual = table.unbind(1)
    gradient_square = residual + square * coefficient**2
    is_zero = residual <= rounding**2 * gradient_square
    scale = (gradient_square / torch.where(is_zero, 1, residual)).sqrt() if renormalize else torch.ones_like(square)
    scale = torch.where(is_zero, 0, scale)
    is_finite = gradient_square.isfinite() & scale.isfinite()
    return Correction(torch.where(is_finite, coefficient, 0), torch.where(is_finite, scale, 1))
