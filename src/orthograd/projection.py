"""Reference implementation of ⊥Grad: slow, readable, in float64.

The fast implementations in `orthograd.engine` are tested against these functions.

Reference: Hedges, "OrthoGrad Improves Neural Calibration", definition 1 and its appendix.
"""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonal_component(gradient: Tensor, weight: Tensor, *, rows: bool = False) -> Tensor:
    """The orthogonal component g⊥ = g − (⟨g, w⟩ / ‖w‖²) w; g itself where w is zero.

    With ``rows`` every slice along the first dimension is a separate vector.

    >>> orthogonal_component(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    tensor([3., 0.])
    """
    once = gradient - radial_component(gradient, weight, rows=rows)
    # In exact arithmetic a second projection does nothing. In floating point it removes the rounding error of
    # ⟨g, w⟩, which dominates when g is nearly parallel to w.
    return once - radial_component(once, weight, rows=rows)


def radial_component(gradient: Tensor, weight: Tensor, *, rows: bool = False) -> Tensor:
    """The radial component (⟨g, w⟩ / ‖w‖²) w, along the weight; zero where w is zero.

    >>> radial_component(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    tensor([0., 4.])
    """
    square = _inner(weight, weight, rows)
    # A zero weight has no direction, so no part of the gradient is radial.
    return _inner(gradient, weight, rows) / torch.where(square > 0, square, 1) * weight


def renormalized(component: Tensor, gradient: Tensor, *, rows: bool = False, rounding: float = 0.0) -> Tensor:
    """ĝ = (‖g‖ / ‖g⊥‖) g⊥, the component with the norm of g; zero where g⊥ is zero (definition 1, steps 3 and 4).

    The paper adds ε to ‖g⊥‖ to avoid division by zero, which shrinks small gradients. Here g⊥ counts as zero up to
    ``rounding`` · ‖g‖, the most that rounding can leave for a gradient parallel to w.

    >>> renormalized(torch.tensor([3.0, 0.0]), torch.tensor([3.0, 4.0]))
    tensor([5., 0.])
    """
    nonzero = without_rounding(component, gradient, rows=rows, rounding=rounding)
    norm = _inner(nonzero, nonzero, rows).sqrt()
    return _inner(gradient, gradient, rows).sqrt() / torch.where(norm > 0, norm, 1) * nonzero


def without_rounding(component: Tensor, gradient: Tensor, *, rows: bool = False, rounding: float = 0.0) -> Tensor:
    """g⊥, set to exactly zero where ‖g⊥‖ ≤ rounding · ‖g‖."""
    is_zero = _inner(component, component, rows) <= rounding**2 * _inner(gradient, gradient, rows)
    return torch.where(is_zero, 0, component)


def orthogonal_gradient(gradient: Tensor, weight: Tensor, *, renormalize: bool = True, rows: bool = False) -> Tensor:
    """The gradient that ⊥Grad passes to the optimizer, computed and returned in float64.

    Args:
        gradient: g, of any floating or complex dtype.
        weight: w, of the same shape.
        renormalize: rescale g⊥ to the norm of g (definition 1 of the paper), or not (its appendix).
        rows: treat every slice along the first dimension as a separate vector.

    Gradients with inf or NaN are returned unchanged, so that other checks see them.

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
    """Largest ‖g⊥‖ / ‖g‖ that rounding can leave for a gradient parallel to its weight."""
    if dtype not in _ROUNDING:
        # Rounding to the dtype is off by eps/2. In float64 the arithmetic is no wider, and adds its own error.
        eps = torch.finfo(dtype).eps
        _ROUNDING[dtype] = 8 * eps if eps < 1e-10 else eps / 2
    return _ROUNDING[dtype]


def as_real(tensor: Tensor) -> Tensor:
    """The tensor, or the real view of a complex one. Gradients use the inner product Re⟨g, w⟩."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _inner(left: Tensor, right: Tensor, rows: bool) -> Tensor:
    """⟨left, right⟩ over the whole tensor or each row, in a shape that broadcasts with it."""
    return (left * right).sum(dim=list(range(int(rows), left.ndim)), keepdim=True) if left.ndim else left * right
