"""JPEG there and back, pixel by pixel as libjpeg does it, without the lossless part in between."""

from __future__ import annotations

import torch
from torch import Tensor

from .cosine import restored, transformed
from .draws import Draws
from .quantization import quantization_table


def jpeg_compression(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Saved as JPEG and read again."""
    return recompressed(images, (80, 65, 58, 50, 40)[severity - 1])


def recompressed(images: Tensor, quality: int) -> Tensor:
    """Images, uint8 (n, 3, height, width), after a JPEG of this quality with colour at half the resolution."""
    height, width = images.shape[2:]
    luma, blue, red = _luma_and_colour(images.int())
    luma = _coded(luma, quantization_table("luma", quality, images.device))
    table = quantization_table("colour", quality, images.device)
    half = (width + 1) // 2  # what was added to fill a block is not looked at again
    blue, red = (_doubled(_coded(_halved(plane), table)[:, :, :half])[:, :height, :width] for plane in (blue, red))
    return _rgb(luma, blue - 128, red - 128).clamp(0, 255)


def _luma_and_colour(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Y, Cb and Cr in whole numbers; the factors are in units of 2⁻¹⁶."""
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
    """A plane (n, height, width) after its blocks of 8 × 8 were transformed, quantised and restored."""
    height, width = plane.shape[1:]
    whole = _extended(plane, -height % 8, -width % 8).double() - 128
    blocks = whole.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3)
    frequencies = transformed(blocks)
    steps = (frequencies.abs() / (8 * table) + 0.5).floor()  # away from zero at a half
    samples = restored(steps * frequencies.sign() * table) + 128
    plane = samples.clamp(0, 255).int().transpose(2, 3).flatten(3).flatten(1, 2)
    return plane[:, :height, :width]


def _extended(plane: Tensor, below: int, right: int) -> Tensor:
    """The plane with its last row and column repeated."""
    rows = torch.arange(plane.shape[1] + below, device=plane.device).clamp_max(plane.shape[1] - 1)
    columns = torch.arange(plane.shape[2] + right, device=plane.device).clamp_max(plane.shape[2] - 1)
    return plane[:, rows][:, :, columns]


def _halved(plane: Tensor) -> Tensor:
    """Means of 2 × 2 samples, rounded down and up in turn, as wide as whole blocks of 8 are."""
    whole = _extended(plane, plane.shape[1] % 2, -plane.shape[2] % 16)
    rows = whole[:, ::2] + whole[:, 1::2]
    total = rows[:, :, ::2] + rows[:, :, 1::2]
    rounding = 1 + torch.arange(total.shape[2], device=plane.device) % 2
    return (total + rounding.int()) >> 2


def _doubled(plane: Tensor) -> Tensor:
    """Twice as many rows and columns: each new sample is 3/4 the nearer and 1/4 the farther old one, both ways."""
    above, below = (torch.cat(parts, 1) for parts in ((plane[:, :1], plane[:, :-1]), (plane[:, 1:], plane[:, -1:])))
    rows = torch.stack([3 * plane + above, 3 * plane + below], 2).flatten(1, 2)
    left, right = (
        torch.cat(parts, 2) for parts in ((rows[:, :, :1], rows[:, :, :-1]), (rows[:, :, 1:], rows[:, :, -1:]))
    )
    return torch.stack([(3 * rows + left + 8) >> 4, (3 * rows + right + 7) >> 4], 3).flatten(2)
