"""Drops of water on the lens, or mud."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .distance import chamfer_distance
from .draws import Draws
from .edges import canny
from .filters import gaussian

WATER = (175, 238, 238)
MUD = (63, 42, 20)
_RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))  # light from one corner


def spatter(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Where blurred noise is above a threshold, water (severities 1 to 3) or mud."""
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
    """How much water is seen at each place, (n, 1, height, width) from 0 to 1, of a liquid (n, height, width)."""
    levels = (liquid * 255).int().bitwise_and(255)  # what is above 255 starts again at 0
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
    # The sum is exact, and float32 takes back what the division loses: nine threes have the mean 3.
    return _filtered(planes, torch.ones(3, 3, dtype=torch.float64, device=planes.device)).div(9).float()


def _filtered(planes: Tensor, kernel: Tensor) -> Tensor:
    padded = functional.pad(planes[:, None], (1, 1, 1, 1), mode="reflect")
    return functional.conv2d(padded, kernel[None, None])[:, 0]


def _equalized(levels: Tensor) -> Tensor:
    """Whole levels from 0 to 20 spread over 0 to 255, so that all become about as frequent; the lowest becomes 0."""
    flat = levels.flatten(1)
    counts = functional.one_hot(flat, 21).sum(1)
    lowest = flat.amin(1, keepdim=True)
    others = flat.shape[1] - counts.gather(1, lowest)
    ranks = counts.cumsum(1) - counts.gather(1, lowest)
    # One float32 divided by another, as in OpenCV: torch's 255 / x is 255 · (1 / x), which rounds twice.
    scale = torch.full_like(others, 255, dtype=torch.float32) / others.clamp_min(1)
    spread = (ranks.clamp_min(0) * scale).round().long()
    # An image of one level alone keeps it.
    return torch.where(others > 0, spread.gather(1, flat), flat).view(levels.shape)
