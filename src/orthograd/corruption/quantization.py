"""How coarsely JPEG keeps each frequency: the two tables that its standard gives as examples, scaled by quality."""

from __future__ import annotations

import torch
from torch import Tensor

_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_COLOUR_CORNER = ((17, 18, 24, 47), (18, 21, 26, 66), (24, 26, 56, 99), (47, 66, 99, 99))


def quantization_table(kind: str, quality: int, device: torch.device) -> Tensor:
    """Steps (8, 8) of "luma" or "colour", the lowest frequency first, at a quality from 1 to 100.

    >>> quantization_table("luma", 50, torch.device("cpu"))[0, :3]
    tensor([16., 11., 10.], dtype=torch.float64)

    Reference: ITU-T T.81, annex K.
    """
    base = torch.full((8, 8), 99)
    if kind == "luma":
        base = torch.tensor(_LUMA)
    else:
        base[:4, :4] = torch.tensor(_COLOUR_CORNER)
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((base * percent + 50) // 100).clamp(1, 255).to(device, torch.float64)
