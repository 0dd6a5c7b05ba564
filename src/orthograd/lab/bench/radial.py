"""How far from orthogonal to its weight an update is, when only the gradient was made orthogonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim

from ...optimizer import attach
from .claim import Claim

BASES: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD, momentum 0.9": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=1e-2),
}
# Rounding of float32 weights leaves this much; the paper's form has no bound to keep.
REACH = {None: None, "gradient": None, "update": 1e-3}


def update_cosines(*, steps: int = 100, seeds: int = 3) -> list[Claim]:
    """Mean |cos(Δ, w)| over tensors and the first steps of a small classifier, where it learns fastest."""
    claims = []
    for base, make in BASES.items():
        found = {project: _mean_cosine(make, project, steps, seeds) for project in REACH}
        others = {"no ⊥Grad": found[None], 'project="gradient"': found["gradient"]}
        claims.append(Claim(f'|cos(Δ, w)|, {base}, project="update"', found["update"], REACH["update"], others))
    return claims


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
