"""What programs of our convolutions find at a time, and which products are left to cuDNN: as measured on an H200."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

STEMS = (16, 64)
"""Channels behind the first convolutions of the networks here."""
MANY = 512 * 512
"""Weights of a tap, of which to transpose all takes longer than our kernel is faster than cuDNN's."""


class Tile(NamedTuple):
    """Two sides of what a program finds, powers of two, its warps, and how many products ahead it fetches."""

    first: int
    second: int
    warps: int
    stages: int
    more: int = 0
    """A power of two beside the second, where both together are the side."""


WIDE = {160: Tile(256, 128, 8, 5, 64), 320: Tile(128, 256, 8, 3, 64)}
"""Of channels that no large power of two divides, a tile of all of them."""
SPREAD = Tile(256, 64, 4, 3)
"""Of such slopes behind stride 2."""


def is_stem(layer: nn.Conv2d) -> bool:
    """Whether all that a pixel sees of few channels is one small product."""
    is_small = layer.in_channels <= 3 and layer.out_channels in STEMS
    return is_small and layer.kernel_size == (3, 3) and layer.stride == (1, 1)


def has_tiles(channels: int) -> bool:
    """Others would leave parts of tiles empty, by which cuDNN is faster."""
    return channels == 64 or channels % 128 == 0


def backward_ways(layer: nn.Conv2d, dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether slopes of images and those of weights are ours to find: measured on an H200.

    In TF32, weights have to be transposed first, which takes long where there are many.
    """
    inputs, outputs = layer.in_channels, layer.out_channels
    if is_stem(layer):
        return False, True  # no training asks for slopes of the images
    if dtype == torch.float32:
        return layer.stride == (2, 2) or inputs * outputs < MANY, False
    return layer.stride == (1, 1) or inputs % 64 == 0, has_tiles(inputs) and has_tiles(outputs)


def tile_of(pixels: int, channels: int, depth: int) -> Tile:
    """Of a forward pass, and of slopes that go back: pixels by channels, as measured on an H200.

    Where few products are added up, memory bounds it, and small programs keep it busy.
    """
    if channels in WIDE:
        return WIDE[channels]
    if channels % 128 or depth <= 256:
        return Tile(128, 64, 4, 3)
    return Tile(256, 128, 8, 3) if pixels >= 4096 else Tile(128, 128, 8, 4)


def weights_tile_of(inputs: int, outputs: int) -> Tile:
    """Of slopes of weights: outputs by inputs, as measured on an H200."""
    return Tile(128 if outputs % 128 == 0 else 64, 128 if inputs % 128 == 0 and inputs > 128 else 64, 4, 3)
