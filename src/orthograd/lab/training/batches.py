"""Batches of an epoch: the random draws, and the images and targets that they give.

Order, crops, flips and mixup are drawn on the CPU, whatever device trains. `prepared` runs on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...imports import has_triton
from ..data import Dataset
from .config import Config
from .methods import Method

PADDING = 4
VALUES = 1024  # per thread block


@dataclass(frozen=True, eq=False)
class Draws:
    """Random draws for each position in an epoch; None where the config and method need none."""

    rows: Tensor
    """Index of the image."""
    offsets: Tensor | None = None
    """Corner of its crop, (n, 2), in the image padded with 4 black pixels."""
    is_flipped: Tensor | None = None
    """True where the image is mirrored left to right."""
    partners: Tensor | None = None
    """How many places further the image of its batch lies that it is mixed with."""
    shares: Tensor | None = None
    """Mixup weight λ of the image itself."""
    noise: int = 0
    """Seed of the network's random numbers, such as dropout, and of mixup."""

    @classmethod
    def of(cls, config: Config, method: Method, count: int, generator: torch.Generator) -> Draws:
        """Draws for the next epoch of ``count`` images; order, crops and flips do not depend on the method."""
        rows = torch.randperm(count, generator=generator)
        noise = int(torch.randint(2**62, (), generator=generator))  # mixup has its own generator
        offsets = is_flipped = partners = shares = None
        sizes = config.batches_of(count)
        if config.augmentation == "crop_flip":
            offsets = torch.randint(2 * PADDING + 1, (count, 2), generator=generator)
            is_flipped = torch.rand(count, generator=generator) < 0.5
        if method.mixing:
            partners, shares = _mixtures(sizes, method.mixing, torch.Generator().manual_seed(noise))
        return cls(rows, offsets, is_flipped, partners, shares, noise).part(0, sum(sizes))

    def part(self, start: int, stop: int) -> Draws:
        """Draws of one batch, or of several whole batches."""
        return self._each(lambda value: value[start:stop])

    def to(self, device: torch.device) -> Draws:
        """The same draws on a device."""
        return self._each(lambda value: value.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Draws:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: change(each) for name, each in values.items() if isinstance(each, Tensor)}
        return replace(self, **changed)


def _mixtures(sizes: list[int], strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mixup partners, a permutation within each batch, and one λ ~ Beta(strength, strength) per batch."""
    gammas = torch._standard_gamma(torch.full((2, len(sizes)), strength, dtype=torch.float64), generator=generator)
    shares = (gammas[0] / gammas.sum(0)).float().repeat_interleave(torch.tensor(sizes))
    return torch.cat([torch.randperm(size, generator=generator) - torch.arange(size) for size in sizes]), shares


def prepared(data: Dataset, images: Tensor, targets: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Images and class probabilities of the draws: chosen, cropped, flipped, normalized and mixed."""
    chosen, wanted = images[draws.rows], targets[draws.rows]
    if draws.offsets is not None and draws.is_flipped is not None:
        chosen = cropped(chosen, draws.offsets, draws.is_flipped)
    values = data.normalized(chosen)
    if draws.partners is None or draws.shares is None:
        return values, wanted
    partners = torch.arange(len(values), device=values.device) + draws.partners
    return _mixed(values, partners, draws.shares), _mixed(wanted, partners, draws.shares)


def byte_table(data: Dataset, images: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Normalized value of each byte, (256, channels), or None where `in_one_launch` cannot be used."""
    is_known = images.dtype == torch.uint8 and images.is_contiguous() and type(data).normalized is Dataset.normalized
    return _table(data, images, dtype) if is_known and images.is_cuda and has_triton() else None


def _table(data: Dataset, images: Tensor, dtype: torch.dtype) -> Tensor:
    every = torch.arange(256, dtype=torch.uint8, device=images.device).view(-1, 1, 1, 1)
    return data.normalized(every.expand(-1, images.shape[1], -1, -1)).flatten(1).to(dtype).contiguous()


def in_one_launch(images: Tensor, draws: Draws, table: Tensor) -> Tensor:
    """The images of `prepared` without mixup, bit for bit; channels last, in the dtype of the table."""
    from ..kernels.crop_triton import crop_kernel

    shape, values = images.shape[1:], images[:1].numel()
    out = torch.empty(
        (len(draws.rows), *shape), dtype=table.dtype, device=images.device, memory_format=torch.channels_last
    )
    crops = draws.offsets is not None and draws.is_flipped is not None
    crop_kernel[len(out), -(-values // VALUES)](
        images, draws.rows, draws.offsets, draws.is_flipped, table, out, *shape, PADDING, crops, VALUES
    )
    return out


def cropped(images: Tensor, offsets: Tensor, is_flipped: Tensor) -> Tensor:
    """Crops of the images, padded with black, at the offsets; mirrored where ``is_flipped``."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (PADDING,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(len(images), -1)
    columns = offsets[:, 1:] + torch.where(is_flipped[:, None], width - 1 - columns, columns)
    places = torch.arange(len(images), device=images.device).view(-1, 1, 1, 1)
    channels = torch.arange(images.shape[1], device=images.device).view(1, -1, 1, 1)
    return padded[places, channels, rows[:, None, :, None], columns[:, None, None, :]]


def _mixed(values: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """Mixup: λx + (1 − λ)x′.

    Reference: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """
    share = shares.view(-1, *[1] * (values.ndim - 1))
    return share * values + (1 - share) * values[partners]
