"""Streaks as ImageMagick's motion blur draws them: half a Gaussian, along a line of whole pixels."""

from __future__ import annotations

import torch
from torch import Tensor


def streaked(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Σ_i w_i x[p + i · (cos, sin)(angle)] over 2 · radius + 1 pixels, for images (n, channels, height, width).

    Each image has an angle of its own, in degrees. Beyond the border stands the nearest pixel.
    """
    weights = streak_weights(radius, sigma)
    reach = len(weights) - 1
    down, right = (_places(function(angles.double().deg2rad()), len(weights)) for function in (torch.sin, torch.cos))
    height, width = images.shape[2:]
    windows = _bordered(images, reach).unfold(2, height, 1).unfold(3, width, 1)
    image = torch.arange(len(images), device=images.device)
    total = torch.zeros(images.shape, device=images.device)
    for weight, row, column in zip(weights.tolist(), down + reach, right + reach, strict=True):
        total += windows[image, :, row, column] * weight
    # ImageMagick rounds to multiples of 1/257 of a level and cuts these to levels.
    return (total + 1 / 514).floor_()


def streak_weights(radius: int, sigma: float) -> Tensor:
    """exp(−i² / 2σ²) for i = 0 … 2 · radius, normalised; what is too faint to change a level is left out.

    >>> streak_weights(1, 1.0)
    tensor([0.5741, 0.3482, 0.0777], dtype=torch.float64)
    """
    weights = torch.exp(-0.5 * (torch.arange(2 * radius + 1).double() / sigma).square())
    weights /= weights.sum()
    return weights[weights > 1e-8]


def _places(direction: Tensor, count: int) -> Tensor:
    """(count, n): how many pixels each step of a streak is from its start."""
    steps = torch.arange(count, device=direction.device)[:, None]
    return (steps * direction - 0.5).ceil().long()


def _bordered(images: Tensor, reach: int) -> Tensor:
    rows, columns = (
        torch.arange(-reach, side + reach, device=images.device).clamp(0, side - 1) for side in images.shape[2:]
    )
    return images[:, :, rows][:, :, :, columns]
