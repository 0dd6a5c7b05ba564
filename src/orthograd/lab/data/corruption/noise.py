"""Noise that is drawn anew for every value of an image."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws


def gaussian_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + σ N(0, 1), with x from 0 to 1."""
    sigma = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + 255 * sigma * draws.normal(*images.shape[1:])


def shot_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Poisson(r x) / r, with x from 0 to 1: light that arrives photon by photon."""
    rate = (500, 250, 100, 75, 50)[severity - 1]
    return draws.poisson(images * (rate / 255)).double() / rate * 255


def impulse_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Salt and pepper: single values of a pixel turned to 0 or 255, both as often."""
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    chance = draws.uniform(0, 1, *images.shape[1:])
    pepper, salt = chance < amount / 2, chance > 1 - amount / 2
    return torch.where(salt, 255, torch.where(pepper, 0, images))


def speckle_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + x σ N(0, 1): bright values are noisier."""
    sigma = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return images * (1 + sigma * draws.normal(*images.shape[1:]))
