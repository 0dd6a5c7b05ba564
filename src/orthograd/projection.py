"""The mathematics of ⊥Grad in the paper's words: slow, readable, float64.

Everything fast in this package (`orthograd.engine`) is tested against these functions.

Reference: Hedges, "OrthoGrad Improves Neural Calibration", definition 1 and its appendix.
"""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonal_component(gradient: Tensor, weight: Tensor, *, rows: bool = False) -> Tensor:
    """g⊥ = g − (⟨g, w⟩ / ‖w‖²) w, and g itself where w is zero.

    With ``rows`` every slice along the first dimension is a vector of its own.

    >>> orthogonal_component(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    tensor([3., 0.])
    """
    once = gradient - radial_component(gradient, weight, rows=rows)
    # In exact arithmetic a second projection does nothing. In floating point the first one leaves the
    # rounding of ⟨g, w⟩ behind, which is all there is to see when g is nearly parallel to w.
    return once - radial_component(once, weight, rows=rows)


def radial_component(gradient: Tensor, weight: Tensor, *, rows: bool = False) -> Tensor:
    """(⟨g, w⟩ / ‖w‖²) w: the part of the gradient that only rescales the weight."""
    square = _inner(weight, weight, rows)
    # A zero weight has no direction, so nothing of the gradient is radial.
    return _inner(gradient, weight, rows) / torch.where(square > 0, square, 1) * weight


def renormalized(component: Tensor, gradient: Tensor, *, rows: bool = False, rounding: float = 0.0) -> Tensor:
    """ĝ = (‖g‖ / ‖g⊥‖) g⊥, and zero where g⊥ is zero (definition 1, steps 3 and 4).

    The paper adds ε to ‖g⊥‖ against division by zero; that would shrink small gradients. Here g⊥ counts
    as zero up to ``rounding``·‖g‖, as much as rounding alone can make of a gradient parallel to w.
    """
    nonzero = without_rounding(component, gradient, rows=rows, rounding=rounding)
    norm = _inner(nonzero, nonzero, rows).sqrt()
    return _inner(gradient, gradient, rows).sqrt() / torch.where(norm > 0, norm, 1) * nonzero


def without_rounding(component: Tensor, gradient: Tensor, *, rows: bool = False, rounding: float = 0.0) -> Tensor:
    """g⊥, and exactly zero where ‖g⊥‖ ≤ rounding · ‖g‖."""
    is_zero = _inner(component, component, rows) <= rounding**2 * _inner(gradient, gradient, rows)
    return torch.where(is_zero, 0, component)


def orthogonal_gradient(gradient: Tensor, weight: Tensor, *, renormalize: bool = True, rows: bool = False) -> Tensor:
    """What ⊥Grad hands to the optimizer in place of the gradient, computed and returned in float64.

    A vector with anything infinite or NaN in it comes back as it was: ⊥Grad hides no broken gradient.

    >>> gradient, weight = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0])
    >>> orthogonal_gradient(gradient, weight)                     # definition 1
    tensor([5., 0.], dtype=torch.float64)
    >>> orthogonal_gradient(gradient, weight, renormalize=False)  # the appendix
    tensor([3., 0.], dtype=torch.float64)
    """
    rounding = rounding_of(gradient.dtype)
    g, w = as_real(gradient).double(), as_real(weight).double()
    component = orthogonal_component(g, w, rows=rows)
    finish = renormalized if renormalize else without_rounding
    projected = finish(component, g, rows=rows, rounding=rounding)
    projected = torch.where(_inner(projected, projected, rows).isfinite(), projected, g)
    return torch.view_as_complex(projected) if gradient.is_complex() else projected


_ROUNDING: dict[torch.dtype, float] = {}


def rounding_of(dtype: torch.dtype) -> float:
    """‖g⊥‖ / ‖g‖ that rounding alone can leave of a gradient that is parallel to its weight."""
    if dtype not in _ROUNDING:
        # Such numbers are off by eps/2. In float64 the arithmetic is no wider than they are, and is off as well.
        eps = torch.finfo(dtype).eps
        _ROUNDING[dtype] = 8 * eps if eps < 1e-10 else eps / 2
    return _ROUNDING[dtype]


def as_real(tensor: Tensor) -> Tensor:
    """The tensor, or the real view of a complex one: Re⟨g, w⟩ is the inner product gradients live in."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _inner(left: Tensor, right: Tensor, rows: bool) -> Tensor:
    """⟨left, right⟩, of the whole or of each row, shaped to multiply what it came from."""
    return (left * right).sum(dim=list(range(int(rows), left.ndim)), keepdim=True) if left.ndim else left * right
