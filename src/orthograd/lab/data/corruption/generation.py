"""Every corruption by name, for a batch of images of any size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..shifts import SEVERITIES
from .blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from .digital import brightness, contrast, elastic_transform, pixelate, saturate
from .jpeg import jpeg_compression
from .noise import Draws, gaussian_noise, impulse_noise, shot_noise, speckle_noise
from .spatter import spatter
from .weather import fog, frost, snow

Corruption = Callable[[Tensor, int, Draws], Tensor]

_STANDARD: dict[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}
_EXTRA: dict[str, Corruption] = {
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "spatter": spatter,
    "saturate": saturate,
}

CORRUPTIONS = tuple(_STANDARD)
EXTRA = tuple(_EXTRA)
SHORTEST_SIDE = 8  # pixels; some blurs reach further than a smaller image

# Pixels computed at once: 512 images of CIFAR's size. Random numbers are drawn block by block, so another value here
# gives other images for the same seed.
_BLOCK_PIXELS = 1 << 19


def corrupt(images: Tensor, name: str, *, severity: int, seed: int = 0) -> Tensor:
    """The images, uint8 (n, 3, height, width), under one of `CORRUPTIONS` or `EXTRA`, on their device.

    The same seed gives the same pixels on the same type of device. A corrupted image does not depend on the images
    after it.

    >>> white = torch.full((2, 3, 32, 32), 255, dtype=torch.uint8)
    >>> corrupt(white, "impulse_noise", severity=1).float().mean() < 255
    tensor(True)

    Reference: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
    Perturbations", 2019.
    """
    _check(images, name, severity)
    function = (_STANDARD | _EXTRA)[name]
    block = max(1, _BLOCK_PIXELS // (images.shape[2] * images.shape[3]))
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    for start in range(0, len(images), block):
        part = images[start : start + block]
        key = f"{seed} {name} {severity} {start // block}"
        draws = Draws(key, block=block, used=len(part), device=images.device)
        # The assignment truncates to whole levels, like the generator of the published images.
        result[start : start + block] = function(part, severity, draws).clamp(0, 255)
    return result


def check_name(name: str) -> None:
    """Raise ValueError for a corruption that does not exist."""
    if name not in _STANDARD and name not in _EXTRA:
        raise ValueError(f"expected a corruption among {', '.join(CORRUPTIONS + EXTRA)}, got {name}")


def _check(images: Tensor, name: str, severity: int) -> None:
    check_name(name)
    if severity not in SEVERITIES:
        raise ValueError(f"expected a severity from 1 to 5, got {severity}")
    if not isinstance(images, Tensor):
        raise TypeError(f"expected a tensor of images, got {type(images).__name__}")
    if images.dtype != torch.uint8:
        raise ValueError(f"expected images of torch.uint8 from 0 to 255, got {images.dtype}")
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < SHORTEST_SIDE:
        wanted = f"(n, 3, height, width) with sides of at least {SHORTEST_SIDE}"
        raise ValueError(f"expected images {wanted}, got {tuple(images.shape)}")
