"""Accuracy of ⊥Grad: orthogonality and norm of the projected gradient, and orthogonality of the update."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim

from ...optimizer import attach, orthogonalize_
from .claim import UPDATE_COSINE, Claim, Key
from .step import available_peers

ANGLE = 1e-6
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
RESIDUAL_TARGET, NORM_TARGET = 1e-6, 1e-4

BASES: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD, momentum 0.9": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=1e-2),
}
UPDATE_TARGET = 1e-3  # rounding of float32 weights alone gives this much


def residuals(device: torch.device, *, sizes: tuple[int, ...] = SIZES, angle: float = ANGLE) -> list[Claim]:
    """|cos(g⊥, w)| and |‖ĝ‖/‖g‖ − 1| in float32 for g nearly parallel to w, the hardest case: the worst of the sizes.

    Errors are measured in float64.
    """
    errors: dict[str, list[tuple[float, float]]] = {"⊥Grad": []}
    for size in sizes:
        gradient, weight = nearly_parallel(size, angle, device)
        errors["⊥Grad"].append(_errors(gradient, weight, None))
        for name in available_peers():
            errors.setdefault(name, []).append(_errors(gradient, weight, name))
    cosines, norms = ({name: max(e[i] for e in pairs) for name, pairs in errors.items()} for i in (0, 1))
    key = partial(Key, precision="fp32", setting=f"angle {angle:g}")
    return [
        Claim(key("|cos(g⊥, w)|"), cosines.pop("⊥Grad"), RESIDUAL_TARGET, cosines),
        Claim(key("|‖ĝ‖/‖g‖ − 1|"), norms.pop("⊥Grad"), NORM_TARGET, norms),
    ]


def update_cosines(*, steps: int = 100, seeds: int = 3) -> list[Claim]:
    """Mean |cos(Δ, w)| of updates Δ over tensors and the first steps of a small classifier.

    The paper projects the gradient. Momentum and Adam may undo that, so `project="gradient"` has no target.
    """
    claims = []
    for base, make in BASES.items():
        cosines = {project: _mean_cosine(make, project, steps, seeds) for project in (None, "gradient", "update")}
        key = Key(UPDATE_COSINE, optimizer=base, method='project="update"')
        others = {"no ⊥Grad": cosines[None], 'project="gradient"': cosines["gradient"]}
        claims.append(Claim(key, cosines["update"], UPDATE_TARGET, others))
    return claims


def nearly_parallel(size: int, angle: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """A float32 gradient of norm 1 at an angle to its weight."""
    generator = torch.Generator().manual_seed(size)
    weight, other = torch.randn(2, size, generator=generator, dtype=torch.float64)
    other -= (other @ weight) / (weight @ weight) * weight
    gradient = math.cos(angle) * weight / weight.norm() + math.sin(angle) * other / other.norm()
    return gradient.float().to(device), weight.float().to(device)


def _errors(gradient: Tensor, weight: Tensor, peer: str | None) -> tuple[float, float]:
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    if peer is None:
        orthogonalize_([parameter])
    else:
        available_peers()[peer](optim.SGD([parameter], lr=0.0))()
    result, w = parameter.grad.double(), weight.double()
    cosine = (result @ w).abs() / (result.norm() * w.norm()).clamp_min(1e-300)
    norm = (result.norm() / gradient.double().norm() - 1).abs()
    return float(cosine), float(norm)


def _mean_cosine(make: Callable[[Any], optim.Optimizer], project: str | None, steps: int, seeds: int) -> float:
    cosines = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        labels = torch.randint(0, 10, (500,))
        images = torch.randn(10, 32)[labels] + 2 * torch.randn(500, 32)
        optimizer = make(model.parameters())
        if project is not None:
            attach(optimizer, project=project)
        for _ in range(steps):
            before = [p.detach().clone() for p in model.parameters()]
            batch = torch.randint(0, 500, (64,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            cosines += [_cosine(p.detach() - b, b) for p, b in zip(model.parameters(), before, strict=True)]
    return sum(cosines) / len(cosines)


def _cosine(update: Tensor, weight: Tensor) -> float:
    update, weight = update.double().flatten(), weight.double().flatten()
    return float((update @ weight).abs() / (update.norm() * weight.norm()))
