"""Random numbers that an image gets by its place alone, whatever comes after it."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


class Draws:
    """Random numbers for the first `used` images of a block.

    Numbers are always drawn for the whole block, since how a generator fills a tensor depends on its size. So the
    first images get the same numbers, however many there are:

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
        """(used, *shape), evenly between low and high."""
        numbers = torch.rand((self.block, *shape), generator=self.generator, device=self.device)
        return low + (high - low) * numbers[: self.used]

    def below(self, limit: int | Tensor, *shape: int) -> Tensor:
        """Whole numbers (used, *shape) from 0 to limit − 1; a limit may differ by image."""
        # In float64, so that rounding never reaches the limit itself.
        return (self.uniform(0, 1, *shape).double() * limit).long()

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts that happen at these rates, one a value."""
        unused = rates.new_zeros((self.block - self.used, *rates.shape[1:]))
        return torch.poisson(torch.cat([rates, unused]), generator=self.generator)[: self.used]
