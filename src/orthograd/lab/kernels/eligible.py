"""Conditions under which the kernels for convolutions and norms apply, and their tiles, as measured on an H200.

This module does not import Triton.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from ...imports import has_triton

Ways = tuple[Tensor, Tensor]
"""The same values for two uses: the kernel that needs the sum of their gradients adds them."""
Statistics = tuple[Tensor, Tensor]
"""Mean and 1 / standard deviation of each channel of a batch."""
NORM_TYPES = (torch.float32, torch.bfloat16, torch.float16)
CONVOLUTION_TYPES = (torch.bfloat16, torch.float16)
"""Also float32, if the GPU may multiply in TF32."""
SIZES = (4, 8, 16, 32)
"""Heights and widths of output images: tiles consist of whole rows of these."""
ALIGNED = 16
"""Alignment in bytes of a tensor's address, which tensor descriptors need."""
STEMS = (16, 64)
"""Output channels of the first convolutions of the networks here."""
MANY = 512 * 512
"""Weights per tap from which transposing them costs more than these kernels gain over cuDNN."""


class Tile(NamedTuple):
    """Two sides of a thread block's tile, powers of two; its warps; and its pipeline stages."""

    first: int
    second: int
    warps: int
    stages: int
    more: int = 0
    """A power of two to add to the second, if the side is the sum of both."""


WIDE = {160: Tile(256, 128, 8, 5, 64), 320: Tile(128, 256, 8, 3, 64)}
"""Tiles for channel counts that no large power of two divides: all channels in one tile."""
SPREAD = Tile(256, 64, 4, 3)
"""Tile of input gradients for such channels, with stride 2."""


def is_stem(layer: nn.Conv2d) -> bool:
    """True for a first convolution: 3 × 3, stride 1, from at most 3 channels."""
    is_small = layer.in_channels <= 3 and layer.out_channels in STEMS
    return is_small and layer.kernel_size == (3, 3) and layer.stride == (1, 1)


def has_tiles(channels: int) -> bool:
    """True if the channels fill whole tiles; otherwise cuDNN is faster."""
    return channels == 64 or channels % 128 == 0


def backward_ways(layer: nn.Conv2d, dtype: torch.dtype) -> tuple[bool, bool]:
    """True for the input gradient and the weight gradient if these kernels compute it, as measured on an H200.

    In TF32, weights have to be transposed first, which is slow for many weights.
    """
    inputs, outputs = layer.in_channels, layer.out_channels
    if is_stem(layer):
        return False, True  # training does not need the gradient of the images
    if dtype == torch.float32:
        return layer.stride == (2, 2) or inputs * outputs < MANY, False
    return layer.stride == (1, 1) or inputs % 64 == 0, has_tiles(inputs) and has_tiles(outputs)


def tile_of(pixels: int, channels: int, depth: int) -> Tile:
    """Tile of a forward pass or an input gradient: pixels by channels, as measured on an H200.

    Sums of few products are memory-bound, and small thread blocks use the bandwidth best.
    """
    if channels in WIDE:
        return WIDE[channels]
    if channels % 128 or depth <= 256:
        return Tile(128, 64, 4, 3)
    return Tile(256, 128, 8, 3) if pixels >= 4096 else Tile(128, 128, 8, 4)


def weights_tile_of(inputs: int, outputs: int) -> Tile:
    """Tile of a weight gradient: outputs by inputs, as measured on an H200."""
    return Tile(128 if outputs % 128 == 0 else 64, 128 if inputs % 128 == 0 and inputs > 128 else 64, 4, 3)


def is_convolution_fused(layer: nn.Module, x: Tensor) -> TypeGuard[nn.Conv2d]:
    """True if the kernels support this convolution on the current GPU; they have no second derivatives."""
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
    """True if the kernels support these values and are faster: reduced precision, channels last, whole tiles.

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
    least = 128 if size == stride == 1 else 64  # with fewer it is memory-bound, and cuDNN is faster
    is_wide = x.dtype in CONVOLUTION_TYPES and all(count in WIDE or has_tiles(count) for count in channels)
    return is_sized and (is_stem(layer) or (min(channels) >= least and (is_wide or all(map(has_tiles, channels)))))


def _may_round() -> bool:
    """True if float32 convolutions may use TF32."""
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # newer PyTorch, with another setting for recurrent layers
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@cache
def _has_boxes(device: int) -> bool:
    """True on a Hopper GPU, which has TMA, with a Triton that supports it."""
    return has_triton() and torch.cuda.get_device_capability(device)[0] == 9


def is_norm_fused(norm: nn.Module, x: Tensor, plus: Tensor | None = None) -> TypeGuard[nn.BatchNorm2d]:
    """True if the kernels support this norm on the current GPU.

    They have gradients only in train mode, and no second derivatives.
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
    """True if the kernels support these values: channels last, as many as the norm has, and fewer than 2³¹ values.

    >>> norm_fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4), None)
    False
    >>> norm_fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), None)
    True
    """
    is_known = x.dtype in NORM_TYPES and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    # One value has no standard deviation: PyTorch raises the error.
    is_sized = is_known and x.shape[1] == norm.num_features and x.shape[1] < x.numel() < 2**31
    return is_sized and (plus is None or plus.shape == x.shape)
