"""A convolution as networks use it: on some GPUs by kernels of our own."""

from __future__ import annotations

from functools import cache
from typing import TypeGuard

import torch
from torch import Tensor, nn

from ..triton_found import has_triton
from .conv_tiles import WIDE, has_tiles, is_stem
from .norm_relu import Statistics

KINDS = (torch.bfloat16, torch.float16)
"""And float32, where a GPU may multiply in TF32."""
SIZES = (4, 8, 16, 32)
"""Of images behind a convolution, high and wide: tiles of so many pixels are whole rows of them."""
ALIGNED = 16
"""Bytes that the beginning of a tensor is a multiple of, or it has no boxes."""


def convolved(layer: nn.Module, x: Tensor, norm: nn.Module | None = None) -> tuple[Tensor, Statistics | None]:
    """What the layer makes of x, and what the norm behind it needs to know of that, if it came to light."""
    if is_fused(layer, x):
        from .fused_convolution import fused_convolution

        return fused_convolution(layer, x, norm)
    return layer(x), None


def is_fused(layer: nn.Module, x: Tensor) -> TypeGuard[nn.Conv2d]:
    """Whether the kernels do what this convolution does, on the current GPU; their slopes have no slopes."""
    if type(x) is not Tensor or type(layer) is not nn.Conv2d or not x.is_cuda or torch.compiler.is_compiling():
        return False
    if layer._forward_hooks or layer._forward_pre_hooks:
        return False
    by_autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    is_cast = x.dtype == (by_autocast or layer.weight.dtype)
    is_aligned = x.data_ptr() % ALIGNED == layer.weight.data_ptr() % ALIGNED == 0
    is_here = x.device.index == torch.cuda.current_device() and _has_boxes(x.device.index)
    return is_cast and is_aligned and is_here and fits(layer, x)


def fits(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether the kernels can walk these values, and are faster: not of full precision, channels last, in whole tiles.

    >>> x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    >>> fits(nn.Conv2d(64, 128, 3, 2, padding=1, bias=False), x), fits(nn.Conv2d(64, 128, 3, bias=False), x)
    (True, False)
    """
    size, stride = layer.kernel_size[0], layer.stride[0]
    is_usual = layer.kernel_size in ((1, 1), (3, 3)) and layer.stride in ((1, 1), (2, 2)) and layer.bias is None
    is_plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding == (size // 2, size // 2)
    if not (is_usual and is_plain and layer.padding_mode == "zeros"):
        return False
    is_known = x.dtype in KINDS or (x.dtype == torch.float32 and _may_round())
    is_laid = is_known and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_laid or x.shape[1] != layer.in_channels or not 0 < x.numel() < 2**31:
        return False
    is_sized = x.shape[2] == x.shape[3] and x.shape[2] in [stride * side for side in SIZES]
    channels = layer.in_channels, layer.out_channels
    least = 128 if size == stride == 1 else 64  # such a product of fewer is bound by memory, and cuDNN's is faster
    is_wide = x.dtype in KINDS and all(count in WIDE or has_tiles(count) for count in channels)
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
