"""Square-summable steps that never settle: a bare sequence, and ⊥Grad itself on a smooth loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .problems import EPS
from .spiral import WINDING, Walk, spiral_lipschitz, spiral_loss, spiral_orthogonal_gradient, start, walked
from .statement import Demonstration, Statement, rounded, thinned

TITLE = "Where the printed proof stops short: g⊥ → 0 does not make θ converge"
STEPS = 1_000_000
HEIGHTS = [0.08 + 0.01 * i for i in range(53)]  # below 0.08, float64 cannot tell the change of ψ from rounding


def wandering(steps: int = STEPS) -> Demonstration:
    """The harmonic sequence on a circle, and ⊥Grad on the spiral of `orthograd.paper.theory.spiral`."""
    k = spiral_lipschitz()
    walk, turned = walked(0.9 / k, steps), harmonic_angles()
    curves = {
        "harmonic": thinned((turned / (2 * math.pi)).tolist(), 60),
        "turns": [[place.step, place.turned / (2 * math.pi)] for place in walk.places[::5]],
        "path": [rounded(place.point[:2], 4) for place in walk.places[::2]],
        "norms": [[place.step, place.norm - 1] for place in walk.places[::5]],
    }
    return Demonstration("wandering", TITLE, (*_of_sequence(turned), *_of_walk(walk, k), *_of_barrier(0.9 / k)), curves)


def harmonic_angles(steps: int = 1_000_000) -> Tensor:
    """The angle turned by steps of length 1/(n + 10), each orthogonal to the point it leaves; the first has norm 1."""
    lengths = 1 / (torch.arange(steps, dtype=torch.float64) + 10)
    norms = (1 + (lengths**2).cumsum(0) - lengths**2).sqrt()
    return torch.atan(lengths / norms).cumsum(0)


def _of_sequence(turned: Tensor) -> list[Statement]:
    squares = float((1 / (torch.arange(len(turned), dtype=torch.float64) + 10) ** 2).sum())
    says = "steps 1/(n + 10) orthogonal to θ: square-summable, yet the angle grows like log n"
    return [
        Statement(says, "Σ‖θₙ₊₁ − θₙ‖²", squares, "≤", 1 / 9),  # Σ 1/n² from 10 on is below ∫ dx/x² from 9 on
        Statement(says, "turns in a million steps", float(turned[-1]) / (2 * math.pi), "≥", 1.5),
    ]


def _of_walk(walk: Walk, k: float) -> list[Statement]:
    rate, first, last = 0.9 / k, walk.places[0], walk.places[-1]
    before = next(place for place in walk.places if place.step >= last.step / 4)
    bound = float(spiral_loss(torch.tensor(start(), dtype=torch.float64))) / (rate * (1 - rate * k / 2))
    growth = last.norm**2 - first.norm**2 - rate**2 * walk.squares
    says = "⊥Grad on a smooth loss, η = 0.9/k: "
    return [
        Statement(says + "Σ‖g⊥‖² keeps its bound", "Σ‖g⊥‖²", walk.squares, "≤", bound),
        # Every step rounds three coordinates, possibly always in the same direction.
        Statement(says + "‖θ‖² grows by η²Σ‖g⊥‖²", "error", abs(growth), "≤", 8 * EPS * last.step),
        Statement(says + "each step lowers the loss enough", "largest excess", _excess(walk, k), "≤", 1e3 * EPS),
        Statement(says + "yet θ goes round and round", "turns", last.turned / (2 * math.pi), "≥", 2),
        Statement(
            says + "and goes on: turns in the last three quarters of the steps",
            "turns",
            (last.turned - before.turned) / (2 * math.pi),
            "≥",
            0.5,
        ),
    ]


def _excess(walk: Walk, k: float) -> float:
    """The largest L(θₙ₊₁) − L(θₙ) + η(1 − ηk/2)‖g⊥‖² over the places that were kept."""
    points = torch.tensor([place.point for place in walk.places], dtype=torch.float64)
    steps = torch.tensor([spiral_orthogonal_gradient(place.point) for place in walk.places], dtype=torch.float64)
    rate, losses = 0.9 / k, torch.func.vmap(spiral_loss)
    decrease = rate * (1 - rate * k / 2) * (steps**2).sum(1)
    return float((losses(points - rate * steps) - losses(points) + decrease).max())


def _of_barrier(rate: float) -> list[Statement]:
    phases = torch.linspace(0, 2 * math.pi, 65, dtype=torch.float64).tolist()
    least = min(phase + phase_change(height, phase, rate) for height in HEIGHTS for phase in phases)
    says = "no step from 0 ≤ ψ ≤ 2π goes below ψ = 0, for heights v from 0.08 to 0.6"
    return [Statement(says, "least ψ after a step", least, "≥", 0)]


def phase_change(height: float, phase: float, rate: float) -> float:
    """By how much a step from norm 1, this height v and this phase changes ψ = φ − 16/v."""
    angle, flat = phase + WINDING / height, math.sqrt(1 - height**2)
    point = flat * math.cos(angle), flat * math.sin(angle), height
    x, y, z = (p - rate * g for p, g in zip(point, spiral_orthogonal_gradient(point), strict=True))
    turned = math.atan2(point[0] * y - point[1] * x, point[0] * x + point[1] * y)
    return turned - WINDING * (math.sqrt(x * x + y * y + z * z) / z - 1 / height)
