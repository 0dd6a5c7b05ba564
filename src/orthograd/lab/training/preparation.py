"""Images and targets as a step sees them: in order, cropped, flipped, normalised, mixed; on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...engine.compilation import has_triton
from ..data import Dataset
from .draws import PADDING, Draws

VALUES = 1024  # of a program


def prepared(data: Dataset, images: Tensor, targets: Tensor, draws: Draws, batch_size: int) -> tuple[Tensor, Tensor]:
    """What the draws make of these images and of the probabilities of their classes."""
    chosen, wanted = images[draws.rows], targets[draws.rows]
    if draws.offsets is not None and draws.is_flipped is not None:
        chosen = cropped(chosen, draws.offsets, draws.is_flipped)
    values = data.normalised(chosen)
    if draws.partners is None or draws.shares is None:
        return values, wanted
    places = torch.arange(len(values), device=values.device)
    partners = places - places % batch_size + draws.partners
    return _mixed(values, partners, draws.shares), _mixed(wanted, partners, draws.shares)


def byte_table(data: Dataset, images: Tensor, dtype: torch.dtype) -> Tensor | None:
    """What each byte becomes in each channel, (256, channels), where one launch can look that up for these images."""
    is_known = images.dtype == torch.uint8 and images.is_contiguous() and type(data).normalised is Dataset.normalised
    return _table(data, images, dtype) if is_known and images.is_cuda and has_triton() else None


def _table(data: Dataset, images: Tensor, dtype: torch.dtype) -> Tensor:
    every = torch.arange(256, dtype=torch.uint8, device=images.device).view(-1, 1, 1, 1)
    return data.normalised(every.expand(-1, images.shape[1], -1, -1)).flatten(1).to(dtype).contiguous()


def in_one_launch(images: Tensor, draws: Draws, table: Tensor) -> Tensor:
    """The images of `prepared`, unmixed, to the bit; channels last and in the dtype of the table."""
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
    """Each image moved by its offset, black coming in, and mirrored where it is to be."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (PADDING,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(len(images), -1)
    columns = offsets[:, 1:] + torch.where(is_flipped[:, None], width - 1 - columns, columns)
    places = torch.arange(len(images), device=images.device).view(-1, 1, 1, 1)
    channels = torch.arange(images.shape[1], device=images.device).view(1, -1, 1, 1)
    return padded[places, channels, rows[:, None, :, None], columns[:, None, None, :]]


def _mixed(values: Tensor, partners: Tensor, shares: Tensor) -> Tensor:
    """λx + (1 − λ)x′.

    Reference: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """
    share = shares.view(-1, *[1] * (values.ndim - 1))
    return share * values + (1 - share) * values[partners]
