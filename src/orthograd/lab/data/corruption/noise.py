"""Random numbers that depend only on the position of an image, and noise made from them."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


class Draws:
    """Random numbers for the first ``used`` images of a block.

    Numbers are always drawn for the whole block, since how a generator fills a tensor depends on its size. So the
    first images get the same numbers, whatever their count:

    >>> few, many = (Draws("any", block=8, used=used, device=torch.device("cpu")).normal(3) for used in (2, 5))
    >>> torch.equal(few, many[:2])
    True
    """

    def __init__(self, key: str, *, block: int, used: int, device: torch.device) -> None:
        digest = hashlib.blake2b(key.encode(), digest_size=4).digest()  # torch's generator on the CPU keeps 32 bits
        self.generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "big"))
        self.block, self.used, self.device = block, used, device

    def normal(self, *shape: int) -> Tensor:
        """(used, *shape) from the standard normal distribution."""
        return torch.randn((self.block, *shape), generator=self.generator, device=self.device)[: self.used]

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """(used, *shape) from the uniform distribution between low and high."""
        numbers = torch.rand((self.block, *shape), generator=self.generator, device=self.device)
        return low + (high - low) * numbers[: self.used]

    def below(self, limit: int | Tensor, *shape: int) -> Tensor:
        """Integers (used, *shape) from 0 to limit − 1; the limit may differ by image."""
        # In float64, so that rounding never reaches the limit itself.
        return (self.uniform(0, 1, *shape).double() * limit).long()

    def poisson(self, rates: Tensor) -> Tensor:
        """Poisson counts with these rates."""
        unused = rates.new_zeros((self.block - self.used, *rates.shape[1:]))
        return torch.poisson(torch.cat([rates, unused]), generator=self.generator)[: self.used]


def gaussian_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + σ N(0, 1), with x from 0 to 1."""
    sigma = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + 255 * sigma * draws.normal(*images.shape[1:])


def shot_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Poisson(r x) / r, with x from 0 to 1."""
    rate = (500, 250, 100, 75, 50)[severity - 1]
    return draws.poisson(images * (rate / 255)).double() / rate * 255


def impulse_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Salt and pepper: channel values set to 0 or 255 with equal probability."""
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    chance = draws.uniform(0, 1, *images.shape[1:])
    pepper, salt = chance < amount / 2, chance > 1 - amount / 2
    return torch.where(salt, 255, torch.where(pepper, 0, images))


def speckle_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + x σ N(0, 1): bright values are noisier."""
    sigma = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return images * (1 + sigma * draws.normal(*images.shape[1:]))
