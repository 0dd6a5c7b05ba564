"""Drops of water or mud on the lens."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .filters import gaussian
from .noise import Draws

WATER = (175, 238, 238)
MUD = (63, 42, 20)
_RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))  # light from one corner


def spatter(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Water (severities 1 to 3) or mud where blurred noise is above a threshold."""
    mean, sigma, blur, threshold, strength = (
        (0.62, 0.1, 0.7, 0.7, 0.5),
        (0.65, 0.1, 0.8, 0.7, 0.5),
        (0.65, 0.3, 1.0, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    )[severity - 1]
    liquid = gaussian((mean + sigma * draws.normal(*images.shape[2:])).double(), blur)
    if severity <= 3:
        return images + water(torch.where(liquid < threshold, 0, liquid)) * strength * _plane(WATER, images)
    mud = gaussian((liquid > threshold).double(), strength)[:, None]
    cover = torch.where(mud < 0.8, 0, mud)
    return images * (1 - cover) + cover * _plane(MUD, images)


def _plane(color: tuple[int, int, int], images: Tensor) -> Tensor:
    return torch.tensor(color, dtype=torch.float64, device=images.device).view(1, 3, 1, 1)


def water(liquid: Tensor) -> Tensor:
    """Visible water (n, 1, height, width), from 0 to 1, of a liquid (n, height, width)."""
    levels = (liquid * 255).int().bitwise_and(255)  # values above 255 wrap around to 0
    relief = _relief(chamfer_distance(canny(levels)).clamp_max(20))
    seen = levels * relief
    # No water anywhere would be 0 / 0.
    return (seen / seen.amax((1, 2), keepdim=True).clamp_min(1))[:, None]


def _relief(distance: Tensor) -> Tensor:
    """Distances from the edges of drops as levels from 0 to 255, lit from the side."""
    whole = _mean_of_nine(distance).floor().long()
    kernel = torch.tensor(_RELIEF, dtype=torch.float64, device=distance.device)
    lit = _filtered(_equalized(whole).double(), kernel).clamp(0, 255)
    return _mean_of_nine(lit).add(0.5).floor()


def _mean_of_nine(planes: Tensor) -> Tensor:
    # The sum is exact, and rounding to float32 removes the error of the division: nine threes have the mean 3.
    return _filtered(planes, torch.ones(3, 3, dtype=torch.float64, device=planes.device)).div(9).float()


def _filtered(planes: Tensor, kernel: Tensor) -> Tensor:
    padded = functional.pad(planes[:, None], (1, 1, 1, 1), mode="reflect")
    return functional.conv2d(padded, kernel[None, None])[:, 0]


def _equalized(levels: Tensor) -> Tensor:
    """Histogram equalization of whole levels from 0 to 20 to 0 … 255; the lowest level becomes 0."""
    flat = levels.flatten(1)
    counts = functional.one_hot(flat, 21).sum(1)
    lowest = flat.amin(1, keepdim=True)
    others = flat.shape[1] - counts.gather(1, lowest)
    ranks = counts.cumsum(1) - counts.gather(1, lowest)
    # One float32 divided by another, as in OpenCV: torch's 255 / x is 255 · (1 / x), which rounds twice.
    scale = torch.full_like(others, 255, dtype=torch.float32) / others.clamp_min(1)
    spread = (ranks.clamp_min(0) * scale).round().long()
    # An image with a single level keeps it.
    return torch.where(others > 0, spread.gather(1, flat), flat).view(levels.shape)


_LOW, _HIGH = 50, 150
_TANGENT = 13573 / 32768  # of 22.5°


def canny(levels: Tensor) -> Tensor:
    """Canny edges of whole levels (n, height, width): ridges of the gradient that contain a strong one."""
    right, down = _gradient(levels)
    strength = right.abs() + down.abs()
    ridge = (strength > _LOW) & _is_ridge(right, down, strength)
    edges = ridge & (strength > _HIGH)
    while True:
        grown = ridge & (functional.max_pool2d(edges[:, None].float(), 3, 1, 1)[:, 0] > 0)
        if torch.equal(grown, edges):
            return edges
        edges = grown


def _gradient(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel derivatives to the right and downward."""
    slope = torch.tensor([-1.0, 0.0, 1.0], device=levels.device)
    smooth = torch.tensor([1.0, 2.0, 1.0], device=levels.device)
    kernels = torch.stack([torch.outer(smooth, slope), torch.outer(slope, smooth)])[:, None]
    padded = functional.pad(levels[:, None].float(), (1, 1, 1, 1), mode="replicate")
    right, down = functional.conv2d(padded, kernels).unbind(1)
    return right, down


def _is_ridge(right: Tensor, down: Tensor, strength: Tensor) -> Tensor:
    """True where the gradient is largest along its own direction, rounded to 45°."""
    height, width = strength.shape[1:]
    padded = functional.pad(strength, (1, 1, 1, 1))

    def neighbor(rows: int, columns: int) -> Tensor:
        return padded[:, 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    x, y = right.abs(), down.abs()
    across = (strength > neighbor(0, -1)) & (strength >= neighbor(0, 1))
    along = (strength > neighbor(-1, 0)) & (strength >= neighbor(1, 0))
    falling = (strength > neighbor(-1, -1)) & (strength > neighbor(1, 1))
    rising = (strength > neighbor(-1, 1)) & (strength > neighbor(1, -1))
    diagonal = torch.where((right < 0) ^ (down < 0), rising, falling)
    flat, steep = y < x * _TANGENT, y > x * (_TANGENT + 2)
    return torch.where(flat, across, torch.where(steep, along, diagonal))


_FAR = 1e4
# Straight, diagonal, and the knight's move: 1, 1.4 and 2.1969 in OpenCV's units of 2⁻¹⁶.
_STEPS = {(0, 1): 65536 / 65536, (1, 1): 91750 / 65536, (1, 2): 143976 / 65536}


def chamfer_distance(edges: Tensor) -> Tensor:
    """Chamfer distance of each pixel (n, height, width) from the nearest edge, close to the Euclidean distance.

    A shortest path takes at most two of the sixteen steps, in any order. So the directions can be relaxed one after
    the other, each by 1, 2, 4, … steps at once.

    >>> chamfer_distance(torch.tensor([[[True, False, False, False]]]))
    tensor([[[0., 1., 2., 3.]]], dtype=torch.float64)
    """
    distance = torch.where(edges, 0.0, _FAR).double()
    longest = max(edges.shape[1:])
    for (short, long), cost in _STEPS.items():
        for down, right in {(short, long), (short, -long), (long, short), (long, -short)}:
            for count in (2**power for power in range(math.ceil(math.log2(longest)))):
                _relax(distance, down * count, right * count, cost * count)
    return distance


def _relax(distance: Tensor, down: int, right: int, cost: float) -> None:
    """Relax each distance by the path from (down, right) away, in both directions."""
    height, width = distance.shape[1:]
    if down >= height or abs(right) >= width:
        return
    left = max(-right, 0)
    here = distance[:, : height - down, left : width - max(right, 0)]
    there = distance[:, down:, left + right : width - max(right, 0) + right]
    there.copy_(torch.minimum(there, here + cost))
    here.copy_(torch.minimum(here, there + cost))
