"""Corruptions of colour and light, the same at every place of an image.

A colour c is v (1 − s · hue), channel by channel: its value v = max(r, g, b), its saturation s = 1 − min / max, and a
hue that is 0 for the brightest channel, 1 for the darkest, and between them for the third.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws
from .levels import levels


def brightness(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """The value raised by a constant; hue and saturation stay."""
    added = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value, saturation, hue = _parts(images)
    return (value + added).clamp_max(1) * (1 - saturation * hue) * 255


def saturate(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """The saturation s changed to a s + b; hue and value stay."""
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
    """Value and saturation (n, 1, …) and hue (n, 3, …), where grey has the hue of red, as in HSV."""
    shares = levels(images)
    value = shares.amax(1, keepdim=True)
    distance = value - shares
    range_ = distance.amax(1, keepdim=True)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=shares.dtype, device=images.device).view(1, 3, 1, 1)
    hue = torch.where(range_ > 0, distance / range_, red)
    return value, range_ / value.clamp_min(1 / 255), hue
