"""Coarser pixels, with the whole-number arithmetic of Pillow's box filter."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws

_BITS = 22  # Pillow's weights are multiples of 2⁻²²


def pixelate(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Fewer pixels, each the mean of a box, and back to as many as before."""
    scale = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = images.shape[2:]
    small = resized(images, int(height * scale), int(width * scale))
    return resized(small, height, width)


def resized(images: Tensor, height: int, width: int) -> Tensor:
    """Images with this many pixels, as `PIL.Image.resize` with its box filter makes them, first along the rows."""
    for axis, size in ((3, width), (2, height)):
        # Whole numbers below 2⁵³ in float64: the products are exact, and run on a GPU, where whole numbers do not.
        weights = box_matrix(images.shape[axis], size).to(images.device)
        lines = images.double().movedim(axis, -1) @ weights.mT
        images = (lines / (1 << _BITS) + 0.5).floor().clamp(0, 255).movedim(-1, axis)
    return images


def box_matrix(size: int, target: int) -> Tensor:
    """Weights in units of 2⁻²² that bring a line of pixels to a target size.

    >>> box_matrix(4, 2) / 2**22
    tensor([[0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    scale = size / target
    width = max(scale, 1.0)
    centers = (torch.arange(target, dtype=torch.float64)[:, None] + 0.5) * scale
    first, end = ((centers + side * width / 2 + 0.5).long() for side in (-1, 1))
    pixels = torch.arange(size)
    inside = (pixels >= first.clamp_min(0)) & (pixels < end)
    distance = (pixels - centers + 0.5) / width
    weights = (inside & (distance > -0.5) & (distance <= 0.5)).double()
    return (weights / weights.sum(1, keepdim=True) * (1 << _BITS) + 0.5).floor()
