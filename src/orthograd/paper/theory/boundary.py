"""The decision-boundary theorem: steps along the gradient of stationary networks, and random steps of that size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...projection import orthogonal_component, orthogonal_gradient, radial_component
from .statement import Demonstration, Statement

TITLE = "The decision-boundary theorem: gradient steps at a stationary point"
SIZES = (0.01, 0.03, 0.1, 0.3)
"""Step sizes, as shares of ‖θ‖."""
SIDE, DRAWS, SCALE = 80, 8, 1.5
STEPS = 3000
WIDTH, CLASSES, SEEDS = 4, 3, 6
Weights = list[Tensor]
"""One tensor for each layer; the first dimension is the seed."""
Model = Callable[[Weights, Tensor], Tensor]


def points(samples: int = 90, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around three centers, overlapping so that no network fits them all, and the center of each."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % CLASSES
    centers = torch.tensor([[0, 1.2], [1.1, -0.7], [-1.1, -0.7]], dtype=torch.float64)
    return centers[labels] + 0.9 * torch.randn(samples, 2, generator=draw, dtype=torch.float64), labels


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
    centered = hidden - hidden.mean(-2, keepdim=True)
    scaled = centered / (hidden.var(-2, keepdim=True, unbiased=False) + 1e-5).sqrt()
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
    """σ(z) = max(z, 0)²: positively homogeneous like a ReLU, and its derivative is continuous."""
    return hidden.relu() ** 2


def with_one(inputs: Tensor) -> Tensor:
    """(x, 1): a bias of the first layer that scales with it."""
    return torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)


@dataclass(frozen=True)
class Trained:
    """The networks of all seeds after ⊥Grad."""

    model: Model
    weights: Weights
    gradients: Weights
    sines: Tensor
    """‖g⊥‖ / ‖g‖ by seed, over all layers."""


def trained(name: str, *, steps: int, seeds: int = SEEDS) -> Trained:
    """Layer-wise ⊥Grad without renormalization; each seed has its own rate, by backtracking.

    A step that lowers the loss by less than ½η‖g⊥‖² is not taken, and its rate halved; others raise it by 2%.
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


def boundary(steps: int = STEPS) -> Demonstration:
    """Predictions on a grid of the plane that change, for homogeneous networks and for others; homogeneity defects."""
    networks = {name: trained(name, steps=steps if name == "homogeneous" else steps // 3) for name in MODELS}
    curves = {
        name: {
            "gradient": [float(changed_along_gradient(net, size).mean()) for size in SIZES],
            "rescaling": [float(changed_by_rescaling(net, size).mean()) for size in SIZES],
            "random": [float(changed_at_random(net, size).mean()) for size in SIZES],
            "defect": float(defects(net).mean()),
            "sines": net.sines.tolist(),
        }
        for name, net in networks.items()
    }
    maps = {"lengths": list(SIZES), "map": _map(networks["homogeneous"])}
    return Demonstration("boundary", TITLE, (*_of_networks(networks), *_of_maximum()), {"networks": curves, **maps})


def grid(side: int = SIDE) -> Tensor:
    """Points of a square of the plane, on which predictions are counted."""
    axis = torch.linspace(-3, 3, side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


def changed(net: Trained, directions: Weights, size: float) -> Tensor:
    """The share of predictions that change by seed, after a step of this share of ‖θ‖ along the directions."""
    before, after = net.model(net.weights, grid()), net.model(moved(net, directions, size), grid())
    # Where no hidden unit is active all logits are zero: there is no prediction that could change.
    is_predicted = before.abs().amax(-1) > 0
    return ((before.argmax(-1) != after.argmax(-1)) & is_predicted).double().sum(-1) / is_predicted.sum(-1)


def moved(net: Trained, directions: Weights, size: float) -> Weights:
    """The weights after a step against the directions, with the norm of this share of ‖θ‖."""
    factors = size * (squares(net.weights) / squares(directions)).sqrt()
    return [w - factors.view(-1, *[1] * (w.ndim - 1)) * d for w, d in zip(net.weights, directions, strict=True)]


def changed_along_gradient(net: Trained, size: float) -> Tensor:
    """The share of predictions that a gradient step of this size changes."""
    return changed(net, net.gradients, size)


def changed_by_rescaling(net: Trained, size: float) -> Tensor:
    """The share that a step along the radial part changes: none in a homogeneous network, stationary or not."""
    radial = [radial_component(g, w, rows=True) for g, w in zip(net.gradients, net.weights, strict=True)]
    return changed(net, radial, size)


def changed_at_random(net: Trained, size: float) -> Tensor:
    """The share that random steps of the same size change, on average."""
    draw = torch.Generator().manual_seed(2)
    draws = [[torch.randn(w.shape, generator=draw, dtype=w.dtype) for w in net.weights] for _ in range(DRAWS)]
    return torch.stack([changed(net, directions, size) for directions in draws]).mean(0)


def defects(net: Trained) -> Tensor:
    """How far from positively homogeneous, by seed: the sine of the angle by which logits turn when a layer is scaled.

    Each tensor in turn is multiplied by 1.5; root mean square over the grid, and the largest over the tensors.
    """
    before, sines = net.model(net.weights, grid()), []
    for layer in range(len(net.weights)):
        after = net.model([w * SCALE if i == layer else w for i, w in enumerate(net.weights)], grid())
        along = (after * before).sum(-1, keepdim=True) / (before**2).sum(-1, keepdim=True).clamp_min(1e-300)
        share = ((after - along * before) ** 2).sum(-1) / (after**2).sum(-1).clamp_min(1e-300)
        sines.append(share.mean(-1).sqrt())
    return torch.stack(sines).amax(0)


def _of_networks(networks: dict[str, Trained]) -> list[Statement]:
    net = networks["homogeneous"]
    # A step of size s‖θ‖ leaves the rays of the layers by s·‖g⊥‖/‖g‖. Logits turn in proportion, so of the grid
    # the share within that distance of a boundary can change: a few times the distance; ten leaves room.
    allowed = 10 * max(SIZES) * float(net.sines.max())
    along = max(float(changed_along_gradient(net, size).max()) for size in SIZES)
    statements = [
        Statement("homogeneous: ⊥Grad reaches stationarity", "largest ‖g⊥‖/‖g‖", float(net.sines.max()), "≤", 1e-3),
        Statement(
            "homogeneous: scaling a layer scales the logits", "defect", float(defects(net).max()), "≤", 1e-14
        ),  # some tens of roundings, each half of 2.2e-16
        Statement("homogeneous: a gradient step changes no prediction", "largest share changed", along, "≤", allowed),
        Statement(
            "… and a random step of 10% does",
            "least share changed",
            float(changed_at_random(net, 0.1).min()),
            "≥",
            0.01,
        ),
    ]
    for name in ("with biases", "with batch norm", "with a residual sum"):
        other = networks[name]
        share = float(changed_by_rescaling(other, 0.1).mean())
        statements += [
            Statement(f"control, {name}: not homogeneous", "defect", float(defects(other).mean()), "≥", 1e-2),
            Statement(f"control, {name}: rescaling layers by 10% changes predictions", "mean share", share, "≥", 1e-3),
        ]
    kinks = float(networks["with ReLU"].sines.max())
    says = "control, with ReLU: no Lipschitz gradient, and ⊥Grad sticks at the kinks"
    return [*statements, Statement(says, "largest ‖g⊥‖/‖g‖", kinks, "≥", 1e-2)]


def _of_maximum() -> list[Statement]:
    """On the steepest axis of an ellipse gradient and weight are parallel: ⊥Grad stays at the circle's worst point."""
    curvatures, worst = torch.tensor([[1.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
    aside = torch.tensor([torch.tensor(0.1).sin(), torch.tensor(0.1).cos()], dtype=torch.float64)
    step = orthogonal_gradient(curvatures * worst, worst, renormalize=False)
    gain = ((curvatures * worst**2).sum() - (curvatures * aside**2).sum()) / 2
    says = "a stationary point need not be a minimum over directions"
    return [
        Statement(says, "‖g⊥‖ at the worst direction of a quadratic", float(step.norm()), "≤", 0.0),
        Statement(says, "by how much a turn of 0.1 lowers the loss", float(gain), "≥", 1e-3),
    ]


def _map(net: Trained, size: float = 0.3) -> dict[str, list[str]]:
    """The classes of the first seed on the grid, in digits: as trained, after a gradient step, after a random one."""
    draw = torch.Generator().manual_seed(3)
    aside = [torch.randn(w.shape, generator=draw, dtype=w.dtype) for w in net.weights]
    states = {
        "as trained": net.weights,
        "along the gradient": moved(net, net.gradients, size),
        "at random": moved(net, aside, size),
    }
    classes = {name: net.model(state, grid())[0].argmax(-1).view(SIDE, SIDE).tolist() for name, state in states.items()}
    return {name: ["".join(map(str, row)) for row in rows] for name, rows in classes.items()}
