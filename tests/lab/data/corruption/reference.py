"""64 test images of CIFAR-10 corrupted by the public generator; `make_reference.py` wrote the files."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ARRAYS = Path(__file__).parent / "reference.npz"
STATISTICS = Path(__file__).parent / "reference.json"

DETERMINISTIC = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
)
RANDOM = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "elastic_transform",
    "speckle_noise",
    "spatter",
)


@functools.cache
def arrays(name: str) -> Tensor:
    """uint8 images of a corruption (5, n, 3, 32, 32), or the "clean" ones (64, 3, 32, 32)."""
    with np.load(ARRAYS) as file:
        return torch.from_numpy(file[name]).movedim(-1, -3).contiguous()


@functools.cache
def statistics() -> dict[str, list[list[float]]]:
    """`statistics_of` the 64 images of each random corruption, severity by severity."""
    return json.loads(STATISTICS.read_text())


def statistics_of(images: Tensor, clean: Tensor) -> Tensor:
    """Mean, deviation and mean step to the right and down of each channel, and the mean change; (…, 13).

    The images are (…, n, 3, height, width).
    """
    levels, axes = images.double(), (-4, -2, -1)
    right, down = levels.diff(dim=-1).abs().mean(axes), levels.diff(dim=-2).abs().mean(axes)
    change = (levels - clean.double()).abs().mean((-4, -3, -2, -1))[..., None]
    return torch.cat([levels.mean(axes), levels.var(axes).sqrt(), right, down, change], -1)
