"""Filters along rows and columns as matrices, and streaks.

A separable blur or zoom is R x Cᵀ: two matrix products for a whole batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def levels(images: Tensor) -> Tensor:
    """x / 255 in float64, with the same bits on CPU and GPU.

    >>> float(levels(torch.tensor([51], dtype=torch.uint8)))
    0.2
    """
    # Dividing by a Python number, a GPU multiplies by its reciprocal, which is off in the last bit. Truncated to whole
    # levels later, the result can be one less. Division by a tensor on the same device is exact.
    return images.double() / torch.full((), 255.0, dtype=torch.float64, device=images.device)


def filtered(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """R x Cᵀ for planes x of shape (…, height, width).

    >>> filtered(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [1.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([[1.5000],
            [1.5000]])
    """
    return ((planes @ columns.mT).mT @ rows.mT).mT


def gaussian(planes: Tensor, sigma: float, *, truncate: float = 4.0, edge: str = "nearest") -> Tensor:
    """Planes (…, height, width) under a Gaussian blur with this σ in pixels."""
    height, width = (
        gaussian_matrix(side, sigma, truncate=truncate, edge=edge).to(planes) for side in planes.shape[-2:]
    )
    return filtered(planes, height, width)


def gaussian_matrix(size: int, sigma: float, *, truncate: float = 4.0, edge: str = "nearest") -> Tensor:
    """Matrix of a Gaussian blur of a line of pixels, padded with its last pixel or mirrored ("reflect").

    >>> gaussian_matrix(3, 0.4, truncate=2).round(decimals=2)
    tensor([[0.9600, 0.0400, 0.0000],
            [0.0400, 0.9200, 0.0400],
            [0.0000, 0.0400, 0.9600]], dtype=torch.float64)
    """
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma).square())
    sources = torch.arange(size)[:, None] + offsets
    sources = sources.clamp(0, size - 1) if edge == "nearest" else mirrored(sources, size)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, sources, (weights / weights.sum()).expand(size, -1))


def mirrored(positions: Tensor, size: int) -> Tensor:
    """Positions on a line that is mirrored repeatedly at its ends: … 1 0 | 0 1 2 | 2 1 …

    >>> mirrored(torch.arange(-2, 5), 3)
    tensor([1, 0, 0, 1, 2, 2, 1])
    """
    around = positions % (2 * size)
    return torch.minimum(around, 2 * size - 1 - around)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """Matrix that enlarges the middle of a line of pixels to the whole line, by linear interpolation.

    >>> zoom_matrix(4, 2.0)
    tensor([[0.0000, 1.0000, 0.0000, 0.0000],
            [0.0000, 0.6667, 0.3333, 0.0000],
            [0.0000, 0.3333, 0.6667, 0.0000],
            [0.0000, 0.0000, 1.0000, 0.0000]], dtype=torch.float64)
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    steps = torch.arange(size, dtype=torch.float64) + (enlarged - size) // 2
    positions = steps * ((kept - 1) / (enlarged - 1))
    below = positions.floor().clamp_max(kept - 1)
    fraction = positions - below
    matrix = torch.zeros(size, size + 1, dtype=torch.float64)
    first = (size - kept) // 2 + below.long()[:, None]
    matrix.scatter_(1, first, 1 - fraction[:, None]).scatter_(1, first + 1, fraction[:, None])
    # Rounding may put the last position slightly after the last pixel; the published generator has 0 there.
    matrix[positions > kept - 1] = 0
    return matrix[:, :size]


def outer(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Indices (2, entries) and weights of the sparse matrix by which `filtered` acts on a flattened plane.

    >>> outer(torch.eye(1), torch.tensor([[0.0, 1.0], [3.0, 0.0]]))
    (tensor([[0, 1],
            [1, 0]]), tensor([1., 3.]))
    """
    (to_row, from_row), (to_column, from_column) = (matrix.nonzero(as_tuple=True) for matrix in (rows, columns))
    to = to_row[:, None] * len(columns) + to_column
    source = from_row[:, None] * columns.shape[1] + from_column
    weights = rows[to_row, from_row][:, None] * columns[to_column, from_column]
    return torch.stack([to.flatten(), source.flatten()]), weights.flatten()


def streaked(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Σ_i w_i x[p + i · (cos, sin)(angle)] over 2 · radius + 1 pixels, for images (n, channels, height, width).

    This is ImageMagick's motion blur: half a Gaussian, along a line of whole pixels.

    Each image has its own angle, in degrees. The border is padded with the nearest pixel.
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
    # ImageMagick rounds to multiples of 1/257 of a level and truncates these to levels.
    return (total + 1 / 514).floor_()


def streak_weights(radius: int, sigma: float) -> Tensor:
    """exp(−i² / 2σ²) for i = 0 … 2 · radius, normalized; weights too small to change a level are left out.

    >>> streak_weights(1, 1.0)
    tensor([0.5741, 0.3482, 0.0777], dtype=torch.float64)
    """
    weights = torch.exp(-0.5 * (torch.arange(2 * radius + 1).double() / sigma).square())
    weights /= weights.sum()
    return weights[weights > 1e-8]


def _places(direction: Tensor, count: int) -> Tensor:
    """Distance in pixels of each step of a streak from its start, (count, n)."""
    steps = torch.arange(count, device=direction.device)[:, None]
    return (steps * direction - 0.5).ceil().long()


def _bordered(images: Tensor, reach: int) -> Tensor:
    rows, columns = (
        torch.arange(-reach, side + reach, device=images.device).clamp(0, side - 1) for side in images.shape[2:]
    )
    return images[:, :, rows][:, :, :, columns]
