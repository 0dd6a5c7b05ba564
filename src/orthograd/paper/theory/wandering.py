"""Square-summable steps that never settle: a bare sequence, and ⊥Grad itself on a smooth loss.

The valley of that loss winds around a circle forever. With v = z / ‖θ‖, and zero where z ≤ 0,

    L(θ) = exp(−1/‖θ‖² − 2/v) · (1 − (y cos(16/v) − x sin(16/v)) / (2‖θ‖))

In polar coordinates the bracket is 1 − ½ √(1 − v²) sin(φ − 16/v): a valley along φ = 16/v + π/2 that turns faster and
faster towards the equator v = 0, and ever flatter, so that all derivatives stay bounded. The idea is that of Palis
and de Melo's "Mexican hat" for gradient flows (Absil, Mahony and Andrews, SIAM J. Optim. 16, 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .descent import EPS
from .statement import Demonstration, Statement, rounded, thinned

TITLE = "Where the printed proof stops short: g⊥ → 0 does not make θ converge"
STEPS = 1_000_000
HEIGHTS = [0.08 + 0.01 * i for i in range(53)]  # below 0.08, float64 cannot tell the change of ψ from rounding
FLATNESS, WINDING, DEPTH = 2.0, 16.0, 0.5
Point = tuple[float, float, float]


def spiral_loss(weight: Tensor) -> Tensor:
    """L(θ) of a weight with z > 0."""
    norm = weight.norm()
    turned = WINDING * norm / weight[2]
    wave = (weight[1] * turned.cos() - weight[0] * turned.sin()) / norm
    loss: Tensor = torch.exp(-1 / norm**2 - FLATNESS * norm / weight[2]) * (1 - DEPTH * wave)
    return loss


def spiral_orthogonal_gradient(point: Point) -> Point:
    """g⊥ in closed form, in plain numbers: a million steps in seconds. `spiral_loss` is its reference twin.

    L is a function of ‖θ‖ times one of the direction (X, Y, v), so g⊥ is the tangential part of the latter's gradient.
    """
    x, y, z = point
    norm = math.sqrt(x * x + y * y + z * z)
    across, along, height = x / norm, y / norm, z / norm
    u = 1 / height
    size = math.exp(-1 / norm**2 - FLATNESS * u)
    cosine, sine = math.cos(WINDING * u), math.sin(WINDING * u)
    by_u = DEPTH * WINDING * (along * sine + across * cosine) - FLATNESS * (
        1 - DEPTH * (along * cosine - across * sine)
    )
    gx, gy, gv = size * DEPTH * sine, -size * DEPTH * cosine, -size * by_u * u * u
    radial = gx * across + gy * along + gv * height
    return (gx - radial * across) / norm, (gy - radial * along) / norm, (gv - radial * height) / norm


def spiral_lipschitz(heights: int = 160, angles: int = 32, radii: int = 24) -> float:
    """k: the largest eigenvalue of the Hessian, in size, over a grid of points, and 2% for the points between.

    Far from the unit sphere and close to the equator the Hessian fades, so the grid need not go there.
    """
    axes = [torch.linspace(*span, dtype=torch.float64) for span in ((0.1, 0.999, heights), (0.4, 1.6, radii))]
    turns = torch.arange(angles, dtype=torch.float64) * (2 * math.pi / angles)
    v, r, phi = torch.meshgrid(*axes, turns, indexing="ij")
    flat = (1 - v**2).sqrt()
    points = torch.stack([r * flat * phi.cos(), r * flat * phi.sin(), r * v], dim=-1).reshape(-1, 3)
    hessians = torch.func.vmap(torch.func.hessian(spiral_loss), chunk_size=20_000)(points)
    return 1.02 * float(torch.linalg.eigvalsh(hessians).abs().max())


def start(height: float = 0.8) -> Point:
    """A point of norm 1 on the floor of the valley."""
    angle, flat = WINDING / height + math.pi / 2, math.sqrt(1 - height**2)
    return flat * math.cos(angle), flat * math.sin(angle), height


class Place(NamedTuple):
    """The state after some steps: the angle around the z axis, the norm and the height z/‖θ‖."""

    step: int
    turned: float
    norm: float
    height: float
    point: Point


@dataclass(frozen=True)
class Walk:
    """⊥Grad steps on the spiral."""

    places: list[Place]
    squares: float
    """Σ‖g⊥‖²."""
    length: float
    """Σ‖θₙ₊₁ − θₙ‖."""


def walked(rate: float, steps: int, *, kept: int = 1500) -> Walk:
    """⊥Grad steps on the spiral; keeps places evenly spaced in the logarithm of the step."""
    keep = {round(steps ** (i / kept)) for i in range(kept + 1)} | {0}
    places, turned, squares, length = [], 0.0, 0.0, 0.0
    x, y, z = start()
    for step in range(steps + 1):
        if step in keep:
            norm = math.sqrt(x * x + y * y + z * z)
            places.append(Place(step, turned, norm, z / norm, (x, y, z)))
        if step == steps:
            break
        gx, gy, gz = spiral_orthogonal_gradient((x, y, z))
        square = gx * gx + gy * gy + gz * gz
        squares, length = squares + square, length + rate * math.sqrt(square)
        new_x, new_y, z = x - rate * gx, y - rate * gy, z - rate * gz
        turned += math.atan2(x * new_y - y * new_x, x * new_x + y * new_y)
        x, y = new_x, new_y
    return Walk(places, squares, length)


def wandering(steps: int = STEPS) -> Demonstration:
    """The harmonic sequence on a circle, and ⊥Grad on the spiral."""
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
