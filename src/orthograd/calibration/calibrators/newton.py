"""Newton's method for smooth convex objectives: several at once, each with a safeguard of its own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

ITERATIONS = 200
HALVINGS = 60

NEGLIGIBLE = 1e-20
"""Of the decrement gᵀ H⁻¹ g, twice what the objective can still fall: far below what float64 sees in it."""


class Objective(Protocol):
    """Convex functions of the rows of parameters (problems, size)."""

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Values (problems,) and gradients (problems, size)."""
        ...

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step −H⁻¹ g, (problems, size), exact or nearly so."""
        ...


def minimum(objective: Objective, start: Tensor) -> tuple[Tensor, float]:
    """Where each objective is least, and the largest |∂objective| there: the certificate.

    The values never rise, so that nothing is worse than the start.
    """
    parameters, (value, gradient) = start, objective.value_and_gradient(start)
    for _ in range(ITERATIONS):
        step = objective.step(parameters, gradient)
        slope = (gradient * step).sum(1)
        if not bool((slope < -NEGLIGIBLE).any()):
            break
        parameters, value, gradient = _after(objective, parameters, value, gradient, step, slope)
    return parameters, float(gradient.abs().max())


def _after(
    objective: Objective, parameters: Tensor, value: Tensor, gradient: Tensor, step: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, values and gradients after the largest of the steps 1, 1/2, 1/4 … that lower each objective.

    Where a convex function still falls in the direction of the step, it has fallen all the way. The slope shows that
    to the last digit; the value alone drowns in rounding near the minimum.
    """
    length = torch.where(slope < 0, 1.0, 0.0)
    for _ in range(HALVINGS):
        there = parameters + length[:, None] * step
        new_value, new_gradient = objective.value_and_gradient(there)
        falls = ((new_gradient * step).sum(1) <= 0) | (new_value <= value + 1e-4 * length * slope)
        if bool((falls | (length == 0)).all()):
            return there, new_value, new_gradient
        length = torch.where(falls, length, length / 2)
    return parameters, value, gradient


def solved(hessian: Tensor, gradient: Tensor) -> Tensor:
    """−H⁻¹ g for positive definite H (problems, size, size).

    >>> solved(torch.tensor([[[4.0, 0.0], [0.0, 2.0]]]), torch.tensor([[4.0, 1.0]]))
    tensor([[-1.0000, -0.5000]])
    """
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    # Rounding may leave an H of hugely different scales indefinite: then lean towards steepest descent, a little.
    for damping in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
        factor, failures = torch.linalg.cholesky_ex(hessian + torch.diag_embed(damping * diagonal))
        if not bool(failures.any()):
            return -torch.cholesky_solve(gradient[:, :, None], factor)[:, :, 0]
    return -gradient / diagonal
