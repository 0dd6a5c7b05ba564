"""The chances of an epoch, drawn on the CPU whatever device trains: order, crops, flips and mixtures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from .arms import Arm
from .config import Config

PADDING = 4


@dataclass(frozen=True, eq=False)
class Draws:
    """What happens to the image at each place of an epoch; None where nothing of the kind does."""

    rows: Tensor
    """Which image it is."""
    offsets: Tensor | None = None
    """Where its crop begins, (n, 2), in the image with a margin of 4 black pixels."""
    is_flipped: Tensor | None = None
    """Whether left and right change places."""
    partners: Tensor | None = None
    """The place of the image that it is mixed with, counted from the beginning of its batch."""
    shares: Tensor | None = None
    """How much of itself it keeps."""
    noise: int = 0
    """The seed of what the network draws itself, such as dropout."""

    @classmethod
    def of(cls, config: Config, arm: Arm, count: int, generator: torch.Generator) -> Draws:
        """The next epoch of ``count`` images; every arm of a seed has the same order, crops and flips."""
        rows = torch.randperm(count, generator=generator)
        noise = int(torch.randint(2**62, (), generator=generator))  # for what this arm alone draws
        offsets = is_flipped = partners = shares = None
        if config.augmentation == "crop_flip":
            offsets = torch.randint(2 * PADDING + 1, (count, 2), generator=generator)
            is_flipped = torch.rand(count, generator=generator) < 0.5
        if arm.mixing:
            partners, shares = _mixtures(count, config.batch_size, arm.mixing, torch.Generator().manual_seed(noise))
        return cls(rows, offsets, is_flipped, partners, shares, noise)

    def part(self, start: int, stop: int) -> Draws:
        """A batch, or several whole ones."""
        return self._each(lambda value: value[start:stop])

    def to(self, device: torch.device) -> Draws:
        """The same on a device."""
        return self._each(lambda value: value.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Draws:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: change(each) for name, each in values.items() if isinstance(each, Tensor)}
        return replace(self, **changed)


def _mixtures(count: int, batch_size: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each batch one share λ from Beta(strength, strength), and another order of its images."""
    sizes = [len(part) for part in torch.arange(count).split(batch_size)]
    gammas = torch._standard_gamma(torch.full((2, len(sizes)), strength, dtype=torch.float64), generator=generator)
    shares = (gammas[0] / gammas.sum(0)).float().repeat_interleave(torch.tensor(sizes))
    return torch.cat([torch.randperm(size, generator=generator) for size in sizes]), shares
