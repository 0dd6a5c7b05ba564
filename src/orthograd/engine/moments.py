"""Three numbers say all that ⊥Grad needs of a gradient g and a weight w, however the two are cut in pieces.

    B = ‖w‖²        c = ⟨g, w⟩ / B        R = ‖g − c w‖² = ‖g⊥‖²

These are the least-squares fit of g by w. R is carried instead of ‖g‖² = R + c²B because the difference
‖g‖² − c²B cancels to nothing when g is nearly parallel to w. Pieces merge as in parallel variance
(Chan, Golub and LeVeque): B adds, c averages with weights B, and R adds after each piece's residual has been
moved to the common c. Only positive terms are added, so nothing cancels, across chunks, tensors or ranks.

A table holds one row (B, c, R) per piece, in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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
