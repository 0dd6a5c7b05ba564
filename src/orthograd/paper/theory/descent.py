"""⊥Grad steps of a problem, and everything theorem 3.1 speaks about along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...projection import orthogonal_gradient
from .problems import Loss, Problem

Rate = Callable[[int], float]
FIRST_GUESS = 0.1  # of k, where backtracking finds it


@dataclass(frozen=True)
class Path:
    """What happened at each step; losses, weights and norms have one entry more, for the end."""

    losses: Tensor
    weights: Tensor
    squares: Tensor
    """‖g⊥‖² by step and layer."""
    gradients: Tensor
    """‖g‖² by step and layer."""
    rates: Tensor
    lipschitz: Tensor
    """The k that each step was taken with."""
    layers: tuple[int, ...]

    @property
    def norms(self) -> Tensor:
        """‖θ‖² by step and layer."""
        return torch.stack([(part**2).sum(1) for part in self.weights.split(self.layers, dim=1)], dim=1)

    @property
    def decrease(self) -> Tensor:
        """η (1 − ηk/2) ‖g⊥‖²: by how much each step must lower the loss."""
        return self.rates * (1 - self.rates * self.lipschitz / 2) * self.squares.sum(1)

    @property
    def excess(self) -> Tensor:
        """L(θₙ₊₁) − L(θₙ) + η (1 − ηk/2) ‖g⊥‖²: nowhere above zero, but for rounding."""
        return self.losses[1:] - self.losses[:-1] + self.decrease

    @property
    def sines(self) -> Tensor:
        """‖g⊥‖ / ‖g‖, the sine of the angle between gradient and weight, by step."""
        return torch.sqrt(self.squares.sum(1) / self.gradients.sum(1).clamp_min(1e-300))

    @property
    def length(self) -> Tensor:
        """How far the weight has travelled after each step."""
        steps: Tensor = torch.linalg.vector_norm(self.weights.diff(dim=0), dim=1)
        return steps.cumsum(0)


def descend(
    problem: Problem, *, steps: int, layerwise: bool, rate: float | Rate | None = None, renormalize: bool = False
) -> Path:
    """Take ⊥Grad steps θ ← θ − η g⊥; without a rate, η = 1 / (2k) with k found by backtracking as it goes.

    Backtracking doubles k wherever a step lowers the loss by less than the theorem says. On a bounded set that
    happens finitely often if the gradient is Lipschitz there, and ⊥Grad stays in one (docs/theory.md).
    """
    layers = problem.layers if layerwise else (len(problem.start),)
    weight, k, rows = problem.start, problem.lipschitz or FIRST_GUESS, []
    gradient, loss = evaluated(problem.loss, weight)
    weights, losses = [weight], [loss]
    for step in range(steps):
        direction = orthogonal(gradient, weight, layers)
        squares = squared(direction, layers)
        if renormalize:
            direction = orthogonal(gradient, weight, layers, renormalize=True)
        while True:
            eta = 0.5 / k if rate is None else rate if isinstance(rate, float) else rate(step)
            moved = weight - eta * direction
            following, lower = evaluated(problem.loss, moved)
            if rate is not None or lower <= loss - eta * (1 - eta * k / 2) * squares.sum() + problem.rounding:
                break
            k *= 2
        rows.append((squares, squared(gradient, layers), eta, k))
        weight, gradient, loss = moved, following, lower
        weights.append(weight)
        losses.append(loss)
    return _path(weights, losses, rows, layers)


def evaluated(loss: Loss, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient and the loss."""
    variable = weight.detach().requires_grad_()
    value = loss(variable)
    return torch.autograd.grad(value, variable)[0], value.detach()


def orthogonal(gradient: Tensor, weight: Tensor, layers: tuple[int, ...], *, renormalize: bool = False) -> Tensor:
    """g⊥ of each layer."""
    pairs = zip(gradient.split(layers), weight.split(layers), strict=True)
    return torch.cat([orthogonal_gradient(g, w, renormalize=renormalize) for g, w in pairs])


def squared(vector: Tensor, layers: tuple[int, ...]) -> Tensor:
    """‖v‖² of each layer."""
    return torch.stack([(part**2).sum() for part in vector.split(layers)])


def _path(
    weights: list[Tensor],
    losses: list[Tensor],
    rows: list[tuple[Tensor, Tensor, float, float]],
    layers: tuple[int, ...],
) -> Path:
    squares, gradients, rates, lipschitz = zip(*rows, strict=True)
    return Path(
        losses=torch.stack(losses),
        weights=torch.stack(weights),
        squares=torch.stack(squares),
        gradients=torch.stack(gradients),
        rates=torch.tensor(rates, dtype=torch.float64),
        lipschitz=torch.tensor(lipschitz, dtype=torch.float64),
        layers=layers,
    )
