"""A smooth loss on which ⊥Grad never settles: its valley winds around a circle for ever.

With v = z / ‖θ‖, and zero where z ≤ 0,

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
    """k: the largest eigenvalue of the Hessian, in size, over a grid of points, and 2 % for what lies between.

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
    """Where ⊥Grad was after some steps: the angle it had turned by around the z axis, its norm and its height z/‖θ‖."""

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
