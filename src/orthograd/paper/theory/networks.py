"""Small classifiers of points in the plane, several seeds side by side, trained by layer-wise ⊥Grad to stationarity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...projection import orthogonal_component

WIDTH, CLASSES, SEEDS = 4, 3, 6
Weights = list[Tensor]
"""One tensor for each layer; the first dimension is the seed."""
Model = Callable[[Weights, Tensor], Tensor]


def points(samples: int = 90, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around three centres, overlapping so that no network fits them all, and which centre each belongs to."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % CLASSES
    centres = torch.tensor([[0, 1.2], [1.1, -0.7], [-1.1, -0.7]], dtype=torch.float64)
    return centres[labels] + 0.9 * torch.randn(samples, 2, generator=draw, dtype=torch.float64), labels


def homogeneous(weights: Weights, inputs: Tensor) -> Tensor:
    """f(x) = W₂ σ(W₁ (x, 1)): scaling a layer by c scales all logits by c or c²."""
    return activation(with_one(inputs) @ weights[0].mT) @ weights[1].mT


def relu(weights: Weights, inputs: Tensor) -> Tensor:
    """The same with max(z, 0), whose gradient jumps."""
    return (with_one(inputs) @ weights[0].mT).relu() @ weights[1].mT


def biased(weights: Weights, inputs: Tensor) -> Tensor:
    """f(x) = W₂ σ(W₁ x + b₁) + b₂: a bias does not grow with its layer's weight."""
    return activation(inputs @ weights[0].mT + weights[2][:, None]) @ weights[1].mT + weights[3][:, None]


def normalized(weights: Weights, inputs: Tensor) -> Tensor:
    """f(x) = W₂ σ(γ BN(W₁ (x, 1)) + β), with the mean and variance of the inputs given."""
    hidden = with_one(inputs) @ weights[0].mT
    centred = hidden - hidden.mean(-2, keepdim=True)
    scaled = centred / (hidden.var(-2, keepdim=True, unbiased=False) + 1e-5).sqrt()
    return activation(scaled * weights[2][:, None] + weights[3][:, None]) @ weights[1].mT


def residual(weights: Weights, inputs: Tensor) -> Tensor:
    """f(x) = W₂ (h + σ(W₃ h)), h = W₁ (x, 1): scaling a layer tilts the balance of the two branches."""
    hidden = with_one(inputs) @ weights[0].mT
    return (hidden + activation(hidden @ weights[2].mT)) @ weights[1].mT


MODELS: dict[str, tuple[Model, tuple[tuple[int, ...], ...]]] = {
    "homogeneous": (homogeneous, ((WIDTH, 3), (CLASSES, WIDTH))),
    "with ReLU": (relu, ((WIDTH, 3), (CLASSES, WIDTH))),
    "with biases": (biased, ((WIDTH, 2), (CLASSES, WIDTH), (WIDTH,), (CLASSES,))),
    "with batch norm": (normalized, ((WIDTH, 3), (CLASSES, WIDTH), (WIDTH,), (WIDTH,))),
    "with a residual sum": (residual, ((WIDTH, 3), (CLASSES, WIDTH), (WIDTH, WIDTH))),
}


def activation(hidden: Tensor) -> Tensor:
    """σ(z) = max(z, 0)²: positively homogeneous like a ReLU, and its slope is continuous."""
    return hidden.relu() ** 2


def with_one(inputs: Tensor) -> Tensor:
    """(x, 1): a bias of the first layer that scales with it."""
    return torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)


@dataclass(frozen=True)
class Trained:
    """A network of each seed, where ⊥Grad left it."""

    model: Model
    weights: Weights
    gradients: Weights
    sines: Tensor
    """‖g⊥‖ / ‖g‖ by seed, over all layers."""


def trained(name: str, *, steps: int, seeds: int = SEEDS) -> Trained:
    """Layer-wise ⊥Grad without renormalisation; each seed has its own rate, found by backtracking.

    A step that lowers the loss by less than ½η‖g⊥‖² is not taken, and its rate halved; others raise it by 2 %.
    """
    model, shapes = MODELS[name]
    inputs, labels = points()
    draw = torch.Generator().manual_seed(1)
    weights = [torch.randn(seeds, *shape, generator=draw, dtype=torch.float64) / 2 for shape in shapes]
    rates = torch.full((seeds,), 0.1, dtype=torch.float64)
    gradients, losses = _evaluated(model, weights, inputs, labels)
    for _ in range(steps):
        directions = [orthogonal_component(g, w, rows=True) for g, w in zip(gradients, weights, strict=True)]
        moved = [w - _by_seed(rates, w) * d for w, d in zip(weights, directions, strict=True)]
        following, lower = _evaluated(model, moved, inputs, labels)
        is_taken = lower <= losses - rates / 2 * squares(directions) + 1e-15
        weights, gradients = _chosen(is_taken, moved, weights), _chosen(is_taken, following, gradients)
        losses, rates = lower.where(is_taken, losses), rates * torch.where(is_taken, 1.02, 0.5)
    directions = [orthogonal_component(g, w, rows=True) for g, w in zip(gradients, weights, strict=True)]
    return Trained(model, weights, gradients, (squares(directions) / squares(gradients)).sqrt())


def squares(tensors: Weights) -> Tensor:
    """‖·‖² over all layers, by seed."""
    return torch.stack([(tensor.flatten(1) ** 2).sum(1) for tensor in tensors]).sum(0)


def _evaluated(model: Model, weights: Weights, inputs: Tensor, labels: Tensor) -> tuple[Weights, Tensor]:
    variables = [weight.detach().requires_grad_() for weight in weights]
    logits = model(variables, inputs)
    right = logits.gather(-1, labels.expand(logits.shape[:-1])[..., None])[..., 0]
    losses = (logits.logsumexp(-1) - right).mean(-1)
    return list(torch.autograd.grad(losses.sum(), variables)), losses.detach()


def _chosen(is_first: Tensor, first: Weights, second: Weights) -> Weights:
    return [torch.where(_by_seed(is_first, a), a, b) for a, b in zip(first, second, strict=True)]


def _by_seed(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))
