"""Newton's method for several smooth convex objectives at once, each with its own line search."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

ITERATIONS = 200
HALVINGS = 60

NEGLIGIBLE = 1e-20
"""Stop at this decrement gᵀ H⁻¹ g, twice the remaining decrease of the objective."""


class Objective(Protocol):
    """Convex functions of the rows of parameters (problems, size)."""

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Values (problems,) and gradients (problems, size)."""
        ...

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """Newton's step −H⁻¹ g, (problems, size), exact or approximate."""
        ...


def minimum(objective: Objective, start: Tensor) -> tuple[Tensor, float]:
    """The minimizer of each objective, and the largest |∂objective| there, as a certificate.

    Values never increase, so the result is never worse than the start.
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

    A convex function that still decreases at the end of a step has decreased along all of it. The slope shows that
    exactly, whereas near the minimum the change of the value is below rounding.
    """
    size = torch.where(slope < 0, 1.0, 0.0)
    for _ in range(HALVINGS):
        there = parameters + size[:, None] * step
        new_value, new_gradient = objective.value_and_gradient(there)
        falls = ((new_gradient * step).sum(1) <= 0) | (new_value <= value + 1e-4 * size * slope)
        if bool((falls | (size == 0)).all()):
            return there, new_value, new_gradient
        size = torch.where(falls, size, size / 2)
    return parameters, value, gradient


def solved(hessian: Tensor, gradient: Tensor) -> Tensor:
    """−H⁻¹ g for positive definite H (problems, size, size).

    >>> solved(torch.tensor([[[4.0, 0.0], [0.0, 2.0]]]), torch.tensor([[4.0, 1.0]]))
    tensor([[-1.0000, -0.5000]])
    """
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    # Rounding can make an H of very different scales indefinite: then add damping, towards steepest descent.
    for damping in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
        factor, failures = torch.linalg.cholesky_ex(hessian + torch.diag_embed(damping * diagonal))
        if not bool(failures.any()):
            return -torch.cholesky_solve(gradient[:, :, None], factor)[:, :, 0]
    return -gradient / diagonal
