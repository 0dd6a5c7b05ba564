"""JPEG compression and decompression, pixel for pixel as in libjpeg, without the lossless coding."""

from __future__ import annotations

import torch
from torch import Tensor

from .noise import Draws


def jpeg_compression(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Images saved as JPEG and read again."""
    return recompressed(images, (80, 65, 58, 50, 40)[severity - 1])


def recompressed(images: Tensor, quality: int) -> Tensor:
    """Images, uint8 (n, 3, height, width), after a JPEG of this quality with color at half the resolution."""
    height, width = images.shape[2:]
    luma, blue, red = _luma_and_color(images.int())
    luma = _coded(luma, quantization_table("luma", quality, images.device))
    table = quantization_table("color", quality, images.device)
    half = (width + 1) // 2  # padding of a block is dropped
    blue, red = (_doubled(_coded(_halved(plane), table)[:, :, :half])[:, :height, :width] for plane in (blue, red))
    return _rgb(luma, blue - 128, red - 128).clamp(0, 255)


def _luma_and_color(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Y, Cb and Cr as integers; the factors are in units of 2⁻¹⁶."""
    r, g, b = images.unbind(1)
    luma = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
    middle = (128 << 16) + 32767
    blue = (-11059 * r - 21709 * g + 32768 * b + middle) >> 16
    red = (32768 * r - 27439 * g - 5329 * b + middle) >> 16
    return luma, blue, red


def _rgb(luma: Tensor, blue: Tensor, red: Tensor) -> Tensor:
    r = luma + ((91881 * red + 32768) >> 16)
    g = luma + ((-22554 * blue - 46802 * red + 32768) >> 16)
    b = luma + ((116130 * blue + 32768) >> 16)
    return torch.stack([r, g, b], 1)


def _coded(plane: Tensor, table: Tensor) -> Tensor:
    """A plane (n, height, width) after its 8 × 8 blocks were transformed, quantized and restored."""
    height, width = plane.shape[1:]
    whole = _extended(plane, -height % 8, -width % 8).double() - 128
    blocks = whole.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3)
    frequencies = transformed(blocks)
    steps = (frequencies.abs() / (8 * table) + 0.5).floor()  # halves round away from zero
    samples = restored(steps * frequencies.sign() * table) + 128
    plane = samples.clamp(0, 255).int().transpose(2, 3).flatten(3).flatten(1, 2)
    return plane[:, :height, :width]


def _extended(plane: Tensor, below: int, right: int) -> Tensor:
    """The plane with its last row and column repeated."""
    rows = torch.arange(plane.shape[1] + below, device=plane.device).clamp_max(plane.shape[1] - 1)
    columns = torch.arange(plane.shape[2] + right, device=plane.device).clamp_max(plane.shape[2] - 1)
    return plane[:, rows][:, :, columns]


def _halved(plane: Tensor) -> Tensor:
    """Means of 2 × 2 samples, rounded down and up in turn, padded to whole blocks of 8 columns."""
    whole = _extended(plane, plane.shape[1] % 2, -plane.shape[2] % 16)
    rows = whole[:, ::2] + whole[:, 1::2]
    total = rows[:, :, ::2] + rows[:, :, 1::2]
    rounding = 1 + torch.arange(total.shape[2], device=plane.device) % 2
    return (total + rounding.int()) >> 2


def _doubled(plane: Tensor) -> Tensor:
    """Twice as many rows and columns: each new sample is 3/4 of the nearer and 1/4 of the farther old one, per axis."""
    above, below = (torch.cat(parts, 1) for parts in ((plane[:, :1], plane[:, :-1]), (plane[:, 1:], plane[:, -1:])))
    rows = torch.stack([3 * plane + above, 3 * plane + below], 2).flatten(1, 2)
    left, right = (
        torch.cat(parts, 2) for parts in ((rows[:, :, :1], rows[:, :, :-1]), (rows[:, :, 1:], rows[:, :, -1:]))
    )
    return torch.stack([(3 * rows + left + 8) >> 4, (3 * rows + right + 7) >> 4], 3).flatten(2)


# Rows 1, 3, 5, 7 of C, first half; the others follow by symmetry. libjpeg adds rounded constants, so numbers that are
# equal in exact arithmetic (2260 and 2259) may differ by one.
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
    """Frequencies of blocks (…, 8, 8) of samples around 0, eight times those of the orthonormal transform."""
    matrix = cosine_matrix(blocks.device)
    rows = _shifted(blocks @ matrix.mT, 11)
    return _shifted(rows.mT @ matrix.mT, 15).mT


def restored(frequencies: Tensor) -> Tensor:
    """Blocks of samples around 0 from their frequencies, scaled as in the orthonormal transform."""
    matrix = cosine_matrix(frequencies.device)
    columns = _shifted(frequencies.mT @ matrix, 11)
    return _shifted(columns.mT @ matrix, 18)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    return numbers.div_(1 << bits).add_(0.5).floor_()


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
_COLOR_CORNER = ((17, 18, 24, 47), (18, 21, 26, 66), (24, 26, 56, 99), (47, 66, 99, 99))


def quantization_table(plane: str, quality: int, device: torch.device) -> Tensor:
    """Quantization steps (8, 8) of "luma" or "color", lowest frequency first, at a quality from 1 to 100.

    >>> quantization_table("luma", 50, torch.device("cpu"))[0, :3]
    tensor([16., 11., 10.], dtype=torch.float64)

    Reference: ITU-T T.81, annex K.
    """
    base = torch.full((8, 8), 99)
    if plane == "luma":
        base = torch.tensor(_LUMA)
    else:
        base[:4, :4] = torch.tensor(_COLOR_CORNER)
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((base * percent + 50) // 100).clamp(1, 255).to(device, torch.float64)
