"""Batch norm with what stands around it: sums, and the ReLU behind. On a GPU in few kernels of our own."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..triton_found import has_triton

Ways = tuple[Tensor, Tensor]
"""The same values for two that use them: what slopes they give is added up where it is needed, not in between."""
Statistics = tuple[Tensor, Tensor]
"""Mean and 1/deviation of each channel of a batch."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)


def norm_relu(
    norm: nn.Module, x: Tensor, plus: Tensor | None = None, *, relu: bool = True, found: Statistics | None = None
) -> Ways:
    """relu(norm(x) + plus), or the same without ReLU; x may have been measured before."""
    if is_fused(norm, x, plus):
        from .fused_norm import fused_norm

        return fused_norm(norm, x, plus, relu=relu, found=found)
    y: Tensor = norm(x) if plus is None else norm(x) + plus
    y = functional.relu(y) if relu else y
    return y, y


def sum_norm_relu(norm: nn.Module, x: Tensor, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum x + plus, and relu(norm(x + plus))."""
    if is_fused(norm, x, plus):
        from .fused_norm import fused_sum_norm

        return fused_sum_norm(norm, x, plus)
    total = x if plus is None else x + plus
    return total, functional.relu(norm(total))


def is_fused(norm: nn.Module, x: Tensor, plus: Tensor | None = None) -> TypeGuard[nn.BatchNorm2d]:
    """Whether the kernels do what this norm does, on the current GPU.

    Slopes they have in training alone, and these have no slopes.
    """
    if type(x) is not Tensor or type(norm) is not nn.BatchNorm2d or not x.is_cuda:
        return False
    if not norm.training and torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or norm._forward_hooks or norm._forward_pre_hooks:
        return False
    is_usual = norm.affine and norm.track_running_stats and norm.momentum is not None
    return is_usual and fits(norm, x, plus) and x.device.index == torch.cuda.current_device() and has_triton()


def fits(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None) -> bool:
    """Whether the kernels can walk these values: channels last, as many as the norm has, and not too many to count.

    >>> fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4), None)
    False
    >>> fits(nn.BatchNorm2d(3), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), None)
    True
    """
    is_known = x.dtype in KINDS and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    # Of one value there is no deviation; PyTorch says so.
    is_sized = is_known and x.shape[1] == norm.num_features and x.shape[1] < x.numel() < 2**31
    return is_sized and (plus is None or plus.shape == x.shape)
