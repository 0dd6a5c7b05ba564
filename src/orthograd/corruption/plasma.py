"""Clouds: a plasma fractal made by halving squares and diamonds."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """One map (side, side) an image, from 0 to 1; the side is a power of two, and the map is a torus.

    The middle of four known points is their mean plus w U(−w, w), first of squares and then of diamonds; w starts at
    100 and is divided by the decay each time that the points are twice as dense.
    """
    clouds = torch.zeros(draws.used, side, side, dtype=torch.float64, device=draws.device)
    step, wobble = side, 100.0
    while step >= 2:
        _halve(clouds, step, wobble, draws)
        step, wobble = step // 2, wobble / decay
    clouds -= clouds.amin((1, 2), keepdim=True)
    return clouds / clouds.amax((1, 2), keepdim=True)


def _halve(clouds: Tensor, step: int, wobble: float, draws: Draws) -> None:
    """Fill in the points between those that are a step apart."""
    half = slice(step // 2, None, step)
    whole = slice(0, None, step)

    def middle(total: Tensor) -> Tensor:
        return total / 4 + wobble * draws.uniform(-wobble, wobble, *total.shape[1:])

    corners = clouds[:, whole, whole]
    pairs = corners + corners.roll(-1, 1)
    clouds[:, half, half] = middle(pairs + pairs.roll(-1, 2))
    centers = clouds[:, half, half]
    across = centers + centers.roll(1, 1) + corners + corners.roll(-1, 2)
    clouds[:, whole, half] = middle(across)
    down = centers + centers.roll(1, 2) + corners + corners.roll(-1, 1)
    clouds[:, half, whole] = middle(down)
