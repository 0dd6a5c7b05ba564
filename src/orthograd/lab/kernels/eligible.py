"""When the kernels for convolutions and norms apply, and in which tiles they work: as measured on an H200.

The one place that says so, without Triton.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from ...engine.compilation import has_triton

Ways = tuple[Tensor, Tensor]
"""The same values for two that use them: their gradients are added up in the kernel that needs the sum."""
Statistics = tuple[Tensor, Tensor]
"""Mean and 1/deviation of each channel of a batch."""
NORM_TYPES = (torch.float32, torch.bfloat16, torch.float16)
CONVOLUTION_TYPES = (torch.bfloat16, torch.float16)
"""And float32, where a GPU may multiply in TF32."""
SIZES = (4, 8, 16, 32)
"""Of images behind a convolution, high and wide: tiles of so many pixels are whole rows of them."""
ALIGNED = 16
"""Bytes that the beginning of a tensor is a multiple of, or it has no boxes."""
STEMS = (16, 64)
"""Channels behind the first convolutions of the networks here."""
MANY = 512 * 512
"""Weights of a tap, of which to transpose all takes longer than our kernel is faster than cuDNN's."""


class Tile(NamedTuple):
    """Two sides of what a thread block computes, powers of two, its warps, and how many products ahead it fetches."""

    first: int
    second: int
    warps: int
    stages: int
    more: int = 0
    """A power of two beside the second, where both together are the side."""


WIDE = {160: Tile(256, 128, 8, 5, 64), 320: Tile(128, 256, 8, 3, 64)}
"""Of channels that no large power of two divides, a tile of all of them."""
SPREAD = Tile(256, 64, 4, 3)
"""Of input gradients for such channels, with stride 2."""


def is_stem(layer: nn.Conv2d) -> bool:
    """Whether all that a pixel sees of few channels is one small product."""
    is_small = layer.in_channels <= 3 and layer.out_channels in STEMS
    return is_small and layer.kernel_size == (3, 3) and layer.stride == (1, 1)


def has_tiles(channels: int) -> bool:
    """Others would leave parts of tiles empty, by which cuDNN is faster."""
    return channels == 64 or channels % 128 == 0


def backward_ways(layer: nn.Conv2d, dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether our kernels compute the input gradient and the weight gradient: measured on an H200.

    In TF32, weights have to be transposed first, which takes long where there are many.
    """
    inputs, outputs = layer.in_channels, layer.out_channels
    if is_stem(layer):
        return False, True  # no training asks for the gradient of the images
    if dtype == torch.float32:
        return layer.stride == (2, 2) or inputs * outputs < MANY, False
    return layer.stride == (1, 1) or inputs % 64 == 0, has_tiles(inputs) and has_tiles(outputs)


def tile_of(pixels: int, channels: int, depth: int) -> Tile:
    """Of a forward pass, and of an input gradient: pixels by channels, as measured on an H200.

    Where few products are added up, memory bounds it, and small thread blocks keep it busy.
    """
    if channels in WIDE:
        return WIDE[channels]
    if channels % 128 or depth <= 256:
        return Tile(128, 64, 4, 3)
    return Tile(256, 128, 8, 3) if pixels >= 4096 else Tile(128, 128, 8, 4)


def weights_tile_of(inputs: int, outputs: int) -> Tile:
    """Of a weight gradient: outputs by inputs, as measured on an H200."""
    return Tile(128 if outputs % 128 == 0 else 64, 128 if inputs % 128 == 0 and inputs > 128 else 64, 4, 3)


def is_convolution_fused(layer: nn.Module, x: Tensor) -> TypeGuard[nn.Conv2d]:
    """Whether the kernels do what this convolution does, on the current GPU; they have no second derivatives."""
    if type(x) is not Tensor or type(layer) is not nn.Conv2d or not x.is_cuda or torch.compiler.is_compiling():
        return False
    if layer._forward_hooks or layer._forward_pre_hooks:
        return False
    by_autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    is_cast = x.dtype == (by_autocast or layer.weight.dtype)
    is_aligned = x.data_ptr() % ALIGNED == layer.weight.data_ptr() % ALIGNED == 0
    is_here = x.device.index == torch.cuda.current_device() and _has_boxes(x.device.index)
    return is_cast and is_aligned and is_here and convolution_fits(layer, x)


def convolution_fits(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether the kernels can walk these values, and are faster: not of full precision, channels last, in whole tiles.

    >>> x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    >>> convolution_fits(nn.Conv2d(64, 128, 3, 2, padding=1, bias=False), x)
    True
    >>> convolution_fits(nn.Conv2d(64, 128, 3, bias=False), x)
    False
    """
    size, stride = layer.kernel_size[0], layer.stride[0]
    is_usual = layer.kernel_size in ((1, 1), (3, 3)) and layer.stride in ((1, 1), (2, 2)) and layer.bias is None
    is_plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding == (size // 2, size // 2)
    if not (is_usual and is_plain and layer.padding_mode == "zeros"):
        return False
    is_known = x.dtype in CONVOLUTION_TYPES or (x.dtype == torch.float32 and _may_round())
    is_laid = is_known and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_laid or x.shape[1] != layer.in_channels or not 0 < x.numel() < 2**31:
        return False
    is_sized = x.shape[2] == x.shape[3] and x.shape[2] in [stride * side for side in SIZES]
    channels = layer.in_channels, layer.out_channels
    least = 128 if size == stride == 1 else 64  # such a product of fewer is bound by memory, and cuDNN's is faster
    is_wide = x.dtype in CONVOLUTION_TYPES and all(count in WIDE or has_tiles(count) for count in channels)
    return is_sized and (is_stem(layer) or (min(channels) >= least and (is_wide or all(map(has_tiles, channels)))))


def _may_round() -> bool:
    """Whether convolutions of float32 may be in TF32."""
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # recurrent layers are set otherwise, as they can be by now
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@cache
def _has_boxes(device: int) -> bool:
    """Whether this is the kind of GPU that the kernels were measured on, with a Triton that knows it."""
    return has_triton() and torch.cuda.get_device_capability(device)[0] == 9


def is_norm_fused(norm: nn.Module, x: Tensor, plus: Tensor | None = None) -> TypeGuard[nn.BatchNorm2d]:
    """Whether the kernels do what this norm does, on the current GPU.

    They have gradients in training alone, and no second derivatives.
    """
    if type(x) is not Tensor or type(norm) is not nn.BatchNorm2d or not x.is_cuda:
        return False
    if not norm.training and torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or norm._forward_hooks or norm._forward_pre_hooks:
        return False
    is_usual = norm.affine and norm.track_running_stats and norm.momentum is not None
    return is_usual and norm_fits(norm, x, plus) and x.device.index == torch.cuda.current_device() and has_triton()


def norm_fits(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None) -> bool:
    """Whether the kernels can walk these values: channels last, as many as the norm has, and not too many to count.

    >>> norm_fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4), None)
    False
    >>> norm_fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), None)
    True
    """
    is_known = x.dtype in NORM_TYPES and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    # Of one value there is no deviation; PyTorch says so.
    is_sized = is_known and x.shape[1] == norm.num_features and x.shape[1] < x.numel() < 2**31
    return is_sized and (plus is None or plus.shape == x.shape)
