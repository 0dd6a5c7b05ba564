"""Brightness, saturation, contrast, elastic transforms and pixelation.

A color c is v (1 − s · hue), channel by channel: its value v = max(r, g, b), its saturation s = 1 − min / max, and a
hue that is 0 for the brightest channel, 1 for the darkest, and between them for the third.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .filters import gaussian, levels
from .noise import Draws

_BITS = 22  # Pillow's weights are multiples of 2⁻²²


def brightness(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Value raised by a constant; hue and saturation stay."""
    added = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value, saturation, hue = _parts(images)
    return (value + added).clamp_max(1) * (1 - saturation * hue) * 255


def saturate(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Saturation s changed to a s + b; hue and value stay."""
    factor, added = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    value, saturation, hue = _parts(images)
    return value * (1 - (saturation * factor + added).clamp_max(1) * hue) * 255


def contrast(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """c (x − m) + m with the mean m of each channel of each image."""
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    shares = levels(images)
    # A sum of whole numbers is exact in any order.
    mean = images.double().sum((2, 3), keepdim=True) / (255 * images.shape[2] * images.shape[3])
    return ((shares - mean) * factor + mean) * 255


def _parts(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value and saturation (n, 1, …) and hue (n, 3, …), where gray has the hue of red, as in HSV."""
    shares = levels(images)
    value = shares.amax(1, keepdim=True)
    distance = value - shares
    range_ = distance.amax(1, keepdim=True)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=shares.dtype, device=images.device).view(1, 3, 1, 1)
    hue = torch.where(range_ > 0, distance / range_, red)
    return value, range_ / value.clamp_min(1 / 255), hue


def elastic_transform(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A random affine map and then smooth random displacements.

    Both are in proportion to the image's shorter side.
    """
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
    """Columns and rows (n, height, width) to sample, such that three corners of a square move by up to the jitter."""
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
    """Columns and rows (n, height, width) to sample: each pixel's own, displaced by blurred noise."""
    noise = draws.uniform(-1, 1, 2, *shape).double()
    moves = gaussian(noise, sigma, truncate=3, edge="reflect") * amplitude
    rows, columns = (torch.arange(side, device=draws.device) for side in shape)
    return columns + moves[:, 0], rows[:, None] + moves[:, 1]


def sampled(images: Tensor, columns: Tensor, rows: Tensor, *, repeat_border: bool) -> Tensor:
    """The images at these positions, interpolated linearly and mirrored outside, with the border twice or once."""
    sides = [side - (not repeat_border) for side in (images.shape[3], images.shape[2])]
    shift = 0.5 if repeat_border else 0.0  # grid_sample then counts from the edge of a pixel, not its center
    grid = torch.stack([2 * (columns + shift) / sides[0] - 1, 2 * (rows + shift) / sides[1] - 1], -1)
    return functional.grid_sample(images, grid.to(images), padding_mode="reflection", align_corners=not repeat_border)


def pixelate(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Image reduced by box averages and enlarged again, in Pillow's integer arithmetic."""
    scale = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = images.shape[2:]
    small = resized(images, int(height * scale), int(width * scale))
    return resized(small, height, width)


def resized(images: Tensor, height: int, width: int) -> Tensor:
    """Images resized as by `PIL.Image.resize` with its box filter, first along the rows."""
    for axis, size in ((3, width), (2, height)):
        # Integers below 2⁵³ in float64: products are exact, and run on a GPU, which has no integer matrix products.
        weights = box_matrix(images.shape[axis], size).to(images.device)
        lines = images.double().movedim(axis, -1) @ weights.mT
        images = (lines / (1 << _BITS) + 0.5).floor().clamp(0, 255).movedim(-1, axis)
    return images


def box_matrix(size: int, target: int) -> Tensor:
    """Weights, in units of 2⁻²², that resize a line of pixels to a target size.

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
