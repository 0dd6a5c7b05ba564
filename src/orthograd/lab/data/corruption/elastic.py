"""Images on a rubber sheet: tilted as a whole, then pulled about in small places."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .draws import Draws
from .filters import gaussian


def elastic_transform(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A random affine map and then smooth random displacements, all in proportion to the image's shorter side."""
    amplitude, sigma, jitter = (
        (0.0, 0.0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    )[severity - 1]
    side = min(images.shape[2:])
    tilted = sampled(images.float(), *tilt(images.shape[2:], side * jitter, draws), repeat_border=False)
    if amplitude == 0:
        return tilted
    return sampled(tilted, *pull(images.shape[2:], side * amplitude, side * sigma, draws), repeat_border=True)


def tilt(shape: torch.Size, jitter: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Columns and rows (n, height, width) to read from, so that three corners of a square move by up to the jitter."""
    center = torch.tensor(shape, dtype=torch.float64, device=draws.device) // 2
    reach = min(shape) // 3
    corners = center + reach * torch.tensor([[1, 1], [1, -1], [-1, -1]], device=draws.device)
    moved = corners + draws.uniform(-jitter, jitter, 3, 2)
    affine = torch.linalg.solve(functional.pad(moved, (0, 1), value=1.0), corners.expand_as(moved))
    rows, columns = (torch.arange(side, dtype=torch.float64, device=draws.device) for side in shape)
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)
    places = functional.pad(grid, (0, 1), value=1.0).flatten(0, 1) @ affine
    # OpenCV, which the published generator uses here, reads at multiples of 1/32 of a pixel.
    column, row = ((places * 32).round() / 32).unflatten(1, tuple(shape)).unbind(-1)
    return column, row


def pull(shape: torch.Size, amplitude: float, sigma: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Columns and rows (n, height, width) to read from: each a pixel's own, moved by blurred noise."""
    noise = draws.uniform(-1, 1, 2, *shape).double()
    moves = gaussian(noise, sigma, truncate=3, edge="reflect") * amplitude
    rows, columns = (torch.arange(side, device=draws.device) for side in shape)
    return columns + moves[:, 0], rows[:, None] + moves[:, 1]


def sampled(images: Tensor, columns: Tensor, rows: Tensor, *, repeat_border: bool) -> Tensor:
    """The images at these places, interpolated linearly; outside they are mirrored, with the border twice or once."""
    sides = [side - (not repeat_border) for side in (images.shape[3], images.shape[2])]
    shift = 0.5 if repeat_border else 0.0  # grid_sample counts from the edge of a pixel then, not from its middle
    grid = torch.stack([2 * (columns + shift) / sides[0] - 1, 2 * (rows + shift) / sides[1] - 1], -1)
    return functional.grid_sample(images, grid.to(images), padding_mode="reflection", align_corners=not repeat_border)
