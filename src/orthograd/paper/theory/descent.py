"""Losses in float64, ⊥Grad steps on them, and the quantities of theorem 3.1 along the path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...projection import orthogonal_gradient

EPS = torch.finfo(torch.float64).eps
Loss = Callable[[Tensor], Tensor]
Rate = Callable[[int], float]
FIRST_GUESS = 0.1  # of k, where backtracking finds it


@dataclass(frozen=True)
class Problem:
    """A loss of one flat vector, cut into layers, with the constants of theorem 3.1."""

    name: str
    loss: Loss
    start: Tensor
    layers: tuple[int, ...]
    lipschitz: float | None
    """k, a Lipschitz constant of the gradient everywhere; None if there is none."""
    infimum: float
    """A number that the loss never goes below."""
    rounding: float
    """Bound on the rounding error of the loss along a path on which it falls."""


def quadratic(size: int = 20, *, seed: int = 0) -> Problem:
    """L(θ) = ½ (θ − θ*)ᵀ A (θ − θ*), with k the largest eigenvalue of A; its eigenvalues go from 0.1 to 10."""
    draw = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, size, generator=draw, dtype=torch.float64))[0]
    eigenvalues = torch.logspace(-1, 1, size, dtype=torch.float64)
    minimum, start = torch.randn(2, size, generator=draw, dtype=torch.float64)

    def loss(weight: Tensor) -> Tensor:
        return torch.sum((basis @ (weight - minimum)) ** 2 * eigenvalues) / 2

    k = float(eigenvalues.max())
    # A dot product of m numbers is off by m·eps times the size of its terms; here one sits inside another. The
    # terms are no larger than ½ k (‖θ‖ + ‖θ*‖)², and ‖θ‖² grows by less than 2 L(θ₀) / k along the path.
    reach = (float(start.norm() ** 2 + 2 * loss(start) / k) ** 0.5 + float(minimum.norm())) ** 2
    layers = (size // 4,) * 3 + (size - 3 * (size // 4),)
    return Problem("quadratic", loss, start, layers, k, 0.0, 4 * size * EPS * k * reach / 2)


def logistic(samples: int = 80, size: int = 10, *, seed: int = 1) -> Problem:
    """L(θ) = mean log(1 + exp(−y⟨x, θ⟩)), with k = ‖X‖² / (4n) since the logistic function bends by ¼ at most."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, size, generator=draw, dtype=torch.float64)
    truth, noise, start = (torch.randn(n, generator=draw, dtype=torch.float64) for n in (size, samples, size))
    # With so much noise the classes overlap, so the loss has a minimum.
    signed = torch.sign(inputs @ truth + 3 * noise)[:, None] * inputs

    def loss(weight: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-(signed @ weight)).mean()

    k = float(torch.linalg.matrix_norm(inputs, ord=2) ** 2) / (4 * samples)
    # Softplus has slope 1 at most: an error of size·eps·|x||θ| inside is one of the same size outside.
    reach = float(start.norm() ** 2 + 2 * loss(start) / k) ** 0.5
    largest = float(inputs.norm(dim=1).max()) * reach
    rounding = 2 * EPS * (size * largest + samples * float(loss(start)))
    return Problem("logistic regression", loss, start, (size // 2, size - size // 2), k, 0.0, rounding)


def network(samples: int = 60, widths: tuple[int, int, int] = (2, 6, 3), *, seed: int = 2) -> Problem:
    """Cross-entropy of f(x) = W₂ max(W₁x, 0)²: positively homogeneous and smooth, but without any global k.

    The square makes the gradient Lipschitz on every bounded set, which it is not at the kinks of a ReLU.
    """
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, widths[0], generator=draw, dtype=torch.float64)
    labels = torch.randint(widths[2], (samples,), generator=draw)
    layers = (widths[0] * widths[1], widths[1] * widths[2])
    start = torch.randn(sum(layers), generator=draw, dtype=torch.float64) / 2

    def loss(weight: Tensor) -> Tensor:
        first, second = weight.split(layers)
        hidden = (inputs @ first.view(widths[1], widths[0]).T).relu() ** 2
        logits = hidden @ second.view(widths[2], widths[1]).T
        return torch.nn.functional.cross_entropy(logits, labels)

    # Logits of this network stay below 100 and cross-entropy has slope 2 at most in them.
    rounding = 2 * EPS * (2 * sum(widths) * 100 + samples * float(loss(start)))
    return Problem("homogeneous network", loss, start, layers, None, 0.0, rounding)


@dataclass(frozen=True)
class Path:
    """The state at each step; losses, weights and norms have one more entry, for the end."""

    losses: Tensor
    weights: Tensor
    squares: Tensor
    """‖g⊥‖² by step and layer."""
    gradients: Tensor
    """‖g‖² by step and layer."""
    rates: Tensor
    lipschitz: Tensor
    """k at each step."""
    layers: tuple[int, ...]

    @property
    def norms(self) -> Tensor:
        """‖θ‖² by step and layer."""
        return torch.stack([(part**2).sum(1) for part in self.weights.split(self.layers, dim=1)], dim=1)

    @property
    def decrease(self) -> Tensor:
        """η (1 − ηk/2) ‖g⊥‖²: the least fall of the loss in each step."""
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
        """The length of the path after each step."""
        steps: Tensor = torch.linalg.vector_norm(self.weights.diff(dim=0), dim=1)
        return steps.cumsum(0)


def descend(
    problem: Problem, *, steps: int, layerwise: bool, rate: float | Rate | None = None, renormalize: bool = False
) -> Path:
    """Take ⊥Grad steps θ ← θ − η g⊥; without a rate, η = 1 / (2k) with k by backtracking.

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
