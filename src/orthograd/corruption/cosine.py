"""The cosine transform of 8 × 8 blocks in libjpeg's whole numbers.

Both directions are two passes of y = ⌊(C x + 2ˢ⁻¹) / 2ˢ⌋ with a matrix C of cosines in units of 2⁻¹³ (times √2). The
products stay below 2⁵³, so float64 is exact here, and can be multiplied on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows 1, 3, 5, 7 of C, first half; the others follow by symmetry. libjpeg adds up rounded constants, and so numbers
# that mathematics makes equal (2260 and 2259) differ by one here and there.
_ODD = (
    (11363, 9633, 6437, 2260),
    (9633, -2259, -11362, -6436),
    (6437, -11362, 2261, 9633),
    (2260, -6436, 9633, -11363),
)
_EVEN = (
    (8192, 8192, 8192, 8192),
    (10703, 4433, -4433, -10703),
    (8192, -8192, -8192, 8192),
    (4433, -10704, 10704, -4433),
)


def cosine_matrix(device: torch.device) -> Tensor:
    """C, (8, 8): row k holds √2 · 2¹³ cos((2i + 1) k π / 16), and 2¹³ for k = 0."""
    even = torch.tensor(_EVEN, dtype=torch.float64, device=device)
    odd = torch.tensor(_ODD, dtype=torch.float64, device=device)
    rows = torch.stack([torch.cat([even, even.flip(1)], 1), torch.cat([odd, -odd.flip(1)], 1)], 1)
    return rows.flatten(0, 1)


def transformed(blocks: Tensor) -> Tensor:
    """Blocks (…, 8, 8) of samples around 0 as frequencies, eight times as large as the orthonormal transform's."""
    matrix = cosine_matrix(blocks.device)
    rows = _shifted(blocks @ matrix.mT, 11)
    return _shifted(rows.mT @ matrix.mT, 15).mT


def restored(frequencies: Tensor) -> Tensor:
    """Blocks of samples around 0 from their frequencies, these as large as the orthonormal transform's."""
    matrix = cosine_matrix(frequencies.device)
    columns = _shifted(frequencies.mT @ matrix, 11)
    return _shifted(columns.mT @ matrix, 18)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    return numbers.div_(1 << bits).add_(0.5).floor_()
