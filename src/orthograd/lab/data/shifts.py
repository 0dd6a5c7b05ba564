"""Simple shifts for images of any size, such as noise, blur and contrast, at five severities.

Images are (n, channels, height, width) in float32 from 0 to 1, before and after.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

SEVERITIES = (1, 2, 3, 4, 5)

Shift = Callable[[Tensor, int, torch.Generator], Tensor]


def shifted(images: Tensor, name: str, *, severity: int, seed: int = 0) -> Tensor:
    """The images under one of `SHIFTS`; the same seed gives the same images.

    >>> shifted(torch.tensor([[[[0.0, 1.0]]]]), "contrast", severity=5)
    tensor([[[[0.4000, 0.6000]]]])
    """
    if name not in SHIFTS:
        raise ValueError(f"expected a shift among {', '.join(SHIFTS)}, got {name}")
    if severity not in SEVERITIES:
        raise ValueError(f"expected a severity from 1 to 5, got {severity}")
    return SHIFTS[name](images, severity, torch.Generator().manual_seed(seed)).clamp(0, 1)


def noise(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Gaussian noise with standard deviation 0.1 to 0.5."""
    return images + 0.1 * severity * torch.randn(images.shape, generator=generator)


def dropout(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """10% to 50% of the pixels black."""
    return images * (torch.rand(images[:, :1].shape, generator=generator) >= 0.1 * severity)


def blur(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Gaussian blur with σ of 0.3 to 1.5 pixels for images 8 pixels wide, in proportion for others."""
    sigma = 0.3 * severity * images.shape[-1] / 8
    reach = max(1, round(3 * sigma))
    offsets = torch.arange(-reach, reach + 1)
    kernel = torch.exp(-0.5 * (offsets / sigma).square())
    kernel /= kernel.sum()
    flat = images.flatten(0, 1)[:, None]
    padded = functional.pad(flat, (reach, reach, reach, reach), mode="replicate")
    rows = functional.conv2d(padded, kernel.view(1, 1, 1, -1))
    return functional.conv2d(rows, kernel.view(1, 1, -1, 1)).view_as(images)


def contrast(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Contrast reduced to 0.84 … 0.2: pixels move toward the mean of their image."""
    mean = images.mean((1, 2, 3), keepdim=True)
    return mean + (1 - 0.16 * severity) * (images - mean)


def translation(images: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Translation by up to 5% to 25% of the width and height, padded with black."""
    limit = 0.1 * severity
    moves = (2 * torch.rand((len(images), 2), generator=generator) - 1) * limit
    matrix = torch.eye(2, 3).repeat(len(images), 1, 1)
    matrix[:, :, 2] = moves
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


SHIFTS: dict[str, Shift] = {
    "noise": noise,
    "dropout": dropout,
    "blur": blur,
    "contrast": contrast,
    "translation": translation,
}
