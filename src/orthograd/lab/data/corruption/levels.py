"""Pixels as numbers from 0 to 1."""

from __future__ import annotations

import torch
from torch import Tensor


def levels(images: Tensor) -> Tensor:
    """x / 255 in float64, divided as a CPU divides.

    >>> float(levels(torch.tensor([51], dtype=torch.uint8)))
    0.2
    """
    # By a Python number a GPU would divide as by its reciprocal, off in the last bit; what is cut to whole grey levels
    # later can then be one less. A tensor on the same device is divided by exactly.
    return images.double() / torch.full((), 255.0, dtype=torch.float64, device=images.device)
