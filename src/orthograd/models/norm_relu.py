"""Batch norm with what stands around it: sums, and the ReLU behind. Where a GPU trains, in few kernels of our own."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

Ways = tuple[Tensor, Tensor]
"""The same values for two that use them: what slopes they give is added up where it is needed, not in between."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)
OLDEST_TRITON = (3, 5)


def norm_relu(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None = None, *, relu: bool = True) -> Ways:
    """relu(norm(x) + plus), or the same without ReLU."""
    if is_fused(norm, x):
        from .fused_norm import fused_norm

        return fused_norm(norm, x, plus, relu=relu)
    y = norm(x) if plus is None else norm(x) + plus
    y = functional.relu(y) if relu else y
    return y, y


def sum_norm_relu(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum x + plus, and relu(norm(x + plus))."""
    if is_fused(norm, x):
        from .fused_norm import fused_sum_norm

        return fused_sum_norm(norm, x, plus)
    total = x if plus is None else x + plus
    return total, functional.relu(norm(total))


def walked(layers: nn.Sequential, x: Tensor, plus: Tensor | None = None, *, relu: bool = False) -> Ways:
    """Layer by layer, each norm with the ReLU behind it; to a norm that is the last more may be added, and a ReLU."""
    ways, steps = (x, x), [*layers, None]
    for before, layer, behind in zip([None, *layers], layers, steps[1:], strict=False):
        if isinstance(layer, nn.BatchNorm2d):
            is_last = behind is None
            has_relu = relu if is_last else isinstance(behind, nn.ReLU)
            ways = norm_relu(layer, ways[0], plus if is_last else None, relu=has_relu)
        elif not (isinstance(layer, nn.ReLU) and isinstance(before, nn.BatchNorm2d)):
            ways = (layer(ways[0]),) * 2
    return ways


def is_fused(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Whether the kernels do what this norm does: training on a GPU, channels last, usual statistics."""
    if not norm.training or not x.is_cuda or torch.compiler.is_compiling():
        return False
    is_usual = norm.affine and norm.track_running_stats and norm.momentum is not None
    is_fit = x.dtype in KINDS and x.is_contiguous(memory_format=torch.channels_last) and type(x) is Tensor
    return is_usual and is_fit and has_kernels()


@cache
def has_kernels() -> bool:
    """Whether Triton is here, and one that the kernels are known to compile with."""
    try:
        import triton
    except ImportError:
        return False
    return tuple(map(int, triton.__version__.split(".")[:2])) >= OLDEST_TRITON
