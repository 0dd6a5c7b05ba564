"""The lemma on the renormalized variant: a fixed rate, a falling rate, and ε."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .descent import EPS, Path, Problem, descend
from .statement import Demonstration, Statement, thinned

TITLE = "The lemma on the renormalized variant"
RATE = 0.1  # below 1/k = 1/3
MINIMUM = torch.tensor([1.5, 1.0], dtype=torch.float64)
CURVATURES = torch.tensor([1.0, 3.0], dtype=torch.float64)
OUTSIDE, INSIDE = (2.0, -2.0), (0.5, -0.5)
"""Starts with a norm above and below that of the minimum."""


def renormalization(steps: int = 2000) -> Demonstration:
    """The same two-dimensional quadratic from outside and inside, with fixed and falling rates, without and with ε."""
    paths = {
        "plain": descend(bowl(OUTSIDE), steps=400, layerwise=False, rate=RATE),
        "fixed": descend(bowl(OUTSIDE), steps=400, layerwise=False, rate=RATE, renormalize=True),
        "falling": descend(bowl(OUTSIDE), steps=steps, layerwise=False, rate=falling, renormalize=True),
        "inside": descend(bowl(INSIDE), steps=steps, layerwise=False, rate=RATE, renormalize=True),
    }
    curves = {name: _curves(path) for name, path in paths.items()}
    return Demonstration("renormalization", TITLE, (*_of_paths(paths), *_of_epsilon()), curves)


def bowl(start: tuple[float, float]) -> Problem:
    """L(θ) = ½ (θ − θ*)ᵀ diag(1, 3) (θ − θ*), θ* = (1.5, 1)."""
    begin = torch.tensor(start, dtype=torch.float64)
    return Problem("bowl", lambda w: (CURVATURES * (w - MINIMUM) ** 2).sum() / 2, begin, (2,), 3.0, 0.0, 1e-13)


def falling(step: int) -> float:
    """η / (1 + n/20): rates whose sum is infinite and whose squares have a finite one."""
    return RATE / (1 + step / 20)


def _of_paths(paths: dict[str, Path]) -> list[Statement]:
    plain, fixed, settling, inside = (paths[name] for name in ("plain", "fixed", "falling", "inside"))
    lengths, norms = _lengths(fixed), fixed.norms[:, 0]
    sides = torch.atan2(fixed.weights[200:, 1], fixed.weights[200:, 0]).diff().sign()
    growth = (norms[1:] - norms[:-1] - RATE**2 * fixed.gradients[:, 0]).abs() / norms[1:]
    return [
        Statement(
            "plain ⊥Grad from outside ends where gradient and weight are parallel",
            "‖g⊥‖/‖g‖ at the end",
            float(plain.sines[-1]),
            "≤",
            64 * EPS,  # g⊥ of a parallel gradient is rounding: a few eps of ‖g‖
        ),
        Statement(
            "renormalized, at the same rate: steps do not shrink",
            "shortest step of the last 100 / shortest before",
            float(lengths[-100:].min() / lengths[:-100].min()),
            "≥",
            1.0,
        ),
        Statement(
            "it goes back and forth across the aligned direction",
            "share of steps that turn back",
            float((sides[1:] != sides[:-1]).double().mean()),
            "≥",
            0.5,
        ),
        Statement("‖θ‖² grows by η²‖g‖² a step", "largest relative error", float(growth.max()), "≤", 16 * EPS),
        Statement("so it leaves for infinity", "‖θ‖ at the end / at the start", _growth(fixed), "≥", 2.0),
        Statement(
            "with a falling rate it settles",
            "longest of the last 100 steps",
            float(_lengths(settling)[-100:].max()),
            "≤",
            2e-3,
        ),
        Statement("… at a point of alignment", "‖g⊥‖/‖g‖ at the end", float(settling.sines[-10:].max()), "≤", 1e-2),
        Statement("… where the gradient is not zero", "‖∇L‖", float(settling.gradients[-1].sum().sqrt()), "≥", 1.0),
        Statement(
            "from inside, at a fixed rate, the gradient fades as the lemma says",
            "‖∇L‖ at the end / a quarter of the way",
            float((inside.gradients[-1] / inside.gradients[len(inside.gradients) // 4]).sqrt()),
            "≤",
            0.5,  # it falls like 1/n: four times the steps, about a quarter of the gradient
        ),
    ]


def _of_epsilon() -> list[Statement]:
    weight, sine, gradient = with_epsilon(1.0)
    far, _, _ = with_epsilon(1e-8)
    says = "with ε = 1 as in definition 1, it converges"
    return [
        Statement(says, "‖g⊥‖/‖g‖ at the end", sine, "≤", 64 * EPS),
        Statement(says + " where the gradient is not zero, against the lemma", "‖∇L‖", gradient, "≥", 1.0),
        Statement("with ε = 1e-8 it does not", "‖θ‖ / that with ε = 1", float(far.norm() / weight.norm()), "≥", 2.0),
    ]


def with_epsilon(epsilon: float, steps: int = 400) -> tuple[Tensor, float, float]:
    """θ, ‖g⊥‖/‖g‖ and ‖g‖ after steps of ĝ = ‖g‖ / (‖g⊥‖ + ε) g⊥, the renormalization as the paper prints it."""
    weight = torch.tensor(OUTSIDE, dtype=torch.float64)
    for _ in range(steps):
        gradient = CURVATURES * (weight - MINIMUM)
        across = gradient - (gradient @ weight) / (weight @ weight) * weight
        weight = weight - RATE * gradient.norm() / (across.norm() + epsilon) * across
    return weight, float(across.norm() / gradient.norm()), float(gradient.norm())


def _lengths(path: Path) -> Tensor:
    steps: Tensor = torch.linalg.vector_norm(path.weights.diff(dim=0), dim=1)
    return steps


def _growth(path: Path) -> float:
    return float((path.norms[-1] / path.norms[0]).sum().sqrt())


def _curves(path: Path) -> dict[str, Any]:
    return {
        "weights": path.weights[:150].tolist(),
        "steps": thinned(_lengths(path).tolist()),
        "gradient": thinned(path.gradients.sum(1).sqrt().tolist()),
        "norm": thinned(path.norms.sum(1).sqrt().tolist()),
    }
