"""Blurs: defocus, frosted glass, motion, zoom and Gaussian."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from .filters import gaussian, levels, outer, streaked, zoom_matrix
from .noise import Draws

# The mean of equal levels is that level. A sum, whose order differs between machines, may be too small in the last
# digit, and would then be truncated to the level below.
_ROUNDING = 1e-9


def gaussian_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Gaussian blur, with σ in pixels."""
    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    return gaussian(images.double(), sigma) + _ROUNDING


def defocus_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Mean over a disk with a softened edge; the image is mirrored at its border, which is not repeated."""
    radius, softness = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    kernel = disk(radius, softness).to(images.device)
    reach = len(kernel) // 2
    planes = levels(images).flatten(0, 1)[:, None]
    padded = functional.pad(planes, (reach, reach, reach, reach), mode="reflect")
    return functional.conv2d(padded, kernel[None, None]).view(images.shape) * 255


def disk(radius: float, softness: float) -> Tensor:
    """A disk of pixels that sums to 1, its edge softened by a Gaussian of 3 by 3 pixels.

    >>> round(float(disk(1, 0.2).sum()), 6)
    1.0
    """
    reach = int(radius) + 1
    squares = torch.arange(-reach, reach + 1).square()
    sharp = (squares[:, None] + squares <= radius**2).float()
    sides = torch.exp(-0.5 * (torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) / softness).square())
    sides = (sides / sides.sum()).float()
    soft = torch.outer(sides, sides)
    # Rounded to float32, as in the published generator: this decides how flat areas are truncated.
    return functional.conv2d((sharp / sharp.sum())[None, None], soft[None, None], padding=1)[0, 0].double()


def glass_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Pixels copied from a near neighbor, once or twice, between two Gaussian blurs."""
    sigma, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    blurred = (gaussian(images.double(), sigma) + _ROUNDING).to(torch.uint8)
    for _ in range(rounds):
        blurred = _copied_from_neighbors(blurred, draws)
    return gaussian(blurred.double(), sigma) + _ROUNDING


def _copied_from_neighbors(images: Tensor, draws: Draws) -> Tensor:
    """Each pixel, except in the first two rows and columns, copied from up to one pixel above and to the left.

    The published generator goes from the last pixel to the first and intends to swap, but the pixel that it reads from
    keeps its own color. It reads only pixels that it has not yet changed, so all can be copied at once.
    """
    height, width = images.shape[2:]
    up, left = (draws.below(2, height, width) for _ in range(2))
    up[:, :2], up[:, :, :2], left[:, :2], left[:, :, :2] = 0, 0, 0, 0
    rows = torch.arange(height, device=images.device)[:, None] - up
    columns = torch.arange(width, device=images.device) - left
    sources = (rows * width + columns)[:, None].expand(-1, 3, -1, -1)
    return images.flatten(2).gather(2, sources.flatten(2)).view(images.shape)


def motion_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Motion blur in a direction up to 45° from the horizontal."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    return streaked(images, radius, sigma, draws.uniform(-45, 45))


def zoom_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Mean of the image and of 7 to 26 zooms into it: 1, 1.01, 1.02, …"""
    count = (7, 12, 16, 21, 26)[severity - 1]
    height, width = images.shape[2:]
    operator = _sum_of_zooms(count, height, width, images.device)
    levels = images.flatten(2).flatten(0, 1).double()
    zoomed: Tensor = torch.sparse.mm(operator, levels.mT.contiguous()).mT
    return ((levels + zoomed) / (count + 1) + _ROUNDING).view(images.shape)


@functools.lru_cache(maxsize=8)
def _sum_of_zooms(count: int, height: int, width: int, device: torch.device) -> Tensor:
    """The sum of all zooms of a flattened image, as one sparse matrix."""
    factors = [1 + step * (1.01 - 1) for step in range(count)]  # with the rounding of numpy's arange
    parts = [outer(zoom_matrix(height, factor), zoom_matrix(width, factor)) for factor in factors]
    places = torch.cat([place for place, _ in parts], 1)
    weights = torch.cat([weight for _, weight in parts])
    size = height * width
    with torch.sparse.check_sparse_tensor_invariants():  # without an explicit choice, coalescing warns
        return torch.sparse_coo_tensor(places, weights, (size, size)).coalesce().to(device)
