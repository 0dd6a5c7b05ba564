"""Canny's edges as OpenCV finds them, with the thresholds that spatter needs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_LOW, _HIGH = 50, 150
_TANGENT = 13573 / 32768  # of 22.5°


def canny(levels: Tensor) -> Tensor:
    """True on the edges of whole levels (n, height, width): ridges of the gradient that a strong one belongs to."""
    right, down = _gradient(levels)
    strength = right.abs() + down.abs()
    ridge = (strength > _LOW) & _is_ridge(right, down, strength)
    found = ridge & (strength > _HIGH)
    while True:
        grown = ridge & (functional.max_pool2d(found[:, None].float(), 3, 1, 1)[:, 0] > 0)
        if torch.equal(grown, found):
            return found
        found = grown


def _gradient(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel's derivatives to the right and downwards."""
    slope = torch.tensor([-1.0, 0.0, 1.0], device=levels.device)
    smooth = torch.tensor([1.0, 2.0, 1.0], device=levels.device)
    kernels = torch.stack([torch.outer(smooth, slope), torch.outer(slope, smooth)])[:, None]
    padded = functional.pad(levels[:, None].float(), (1, 1, 1, 1), mode="replicate")
    right, down = functional.conv2d(padded, kernels).unbind(1)
    return right, down


def _is_ridge(right: Tensor, down: Tensor, strength: Tensor) -> Tensor:
    """Whether the gradient is steepest here along its own direction, which is rounded to 45°."""
    height, width = strength.shape[1:]
    padded = functional.pad(strength, (1, 1, 1, 1))

    def neighbour(rows: int, columns: int) -> Tensor:
        return padded[:, 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    x, y = right.abs(), down.abs()
    across = (strength > neighbour(0, -1)) & (strength >= neighbour(0, 1))
    along = (strength > neighbour(-1, 0)) & (strength >= neighbour(1, 0))
    falling = (strength > neighbour(-1, -1)) & (strength > neighbour(1, 1))
    rising = (strength > neighbour(-1, 1)) & (strength > neighbour(1, -1))
    diagonal = torch.where((right < 0) ^ (down < 0), rising, falling)
    flat, steep = y < x * _TANGENT, y > x * (_TANGENT + 2)
    return torch.where(flat, across, torch.where(steep, along, diagonal))
