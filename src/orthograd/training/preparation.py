"""Images and targets as a step sees them: in order, cropped, flipped, normalised, mixed; on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..datasets import Dataset
from .draws import PADDING, Draws


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
