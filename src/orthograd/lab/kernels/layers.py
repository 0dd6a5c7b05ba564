"""Convolutions, BatchNorm and ReLU for networks: by the kernels where they apply, otherwise by PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .eligible import Statistics, Ways, is_convolution_fused, is_norm_fused, is_stem


def convolved(layer: nn.Module, x: Tensor, norm: nn.Module | None = None) -> tuple[Tensor, Statistics | None]:
    """The layer's output, and its statistics for the following norm, if the kernel computed them."""
    if is_convolution_fused(layer, x):
        from .fused_convolution import fused_convolution

        return fused_convolution(layer, x, norm)
    return layer(x), None


def norm_relu(
    norm: nn.Module, x: Tensor, plus: Tensor | None = None, *, relu: bool = True, statistics: Statistics | None = None
) -> Ways:
    """relu(norm(x) + plus), or without ReLU; ``statistics`` of x may be known already."""
    if is_norm_fused(norm, x, plus):
        from .fused_norm import fused_norm

        return fused_norm(norm, x, plus, relu=relu, statistics=statistics)
    y: Tensor = norm(x) if plus is None else norm(x) + plus
    y = functional.relu(y) if relu else y
    return y, y


def sum_norm_relu(norm: nn.Module, x: Tensor, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum x + plus, and relu(norm(x + plus))."""
    if is_norm_fused(norm, x, plus):
        from .fused_norm import fused_sum_norm

        return fused_sum_norm(norm, x, plus)
    total = x if plus is None else x + plus
    return total, functional.relu(norm(total))


def walked(layers: nn.Sequential, x: Tensor, plus: Tensor | None = None, *, relu: bool = False) -> Ways:
    """Output of the layers, each norm fused with the ReLU after it; ``plus`` and ``relu`` apply to the last norm.

    A norm is any layer after a convolution: users may replace BatchNorm by others.
    """
    ways, rest = (x, x), list(layers)
    while rest:
        layer = rest.pop(0)
        is_norm = not rest or isinstance(rest[0], nn.ReLU)
        if not is_norm and len(rest) > 1 and not isinstance(rest[1], nn.ReLU):
            ways = (convolved(layer, ways[0])[0],) * 2
            continue
        norm = layer if is_norm else rest.pop(0)
        opens, rest = bool(rest), rest[1:]
        more, bends = None if rest else plus, opens or relu
        if is_norm:
            ways = norm_relu(norm, ways[0], more, relu=bends)
        else:
            ways = convolved_norm_relu(layer, norm, ways[0], more, relu=bends)
    return ways


def convolved_norm_relu(
    layer: nn.Module, norm: nn.Module, x: Tensor, plus: Tensor | None = None, *, relu: bool = True
) -> Ways:
    """relu(norm(conv(x)) + plus), or without ReLU; in eval mode the kernels do it in one launch."""
    if not torch.is_grad_enabled() and is_convolution_fused(layer, x) and not is_stem(layer):
        from .fused_convolution import evaluated

        all_of_it = evaluated(layer, norm, x, plus, relu=relu)
        if all_of_it is not None:
            return all_of_it, all_of_it
    y, statistics = convolved(layer, x, norm)
    return norm_relu(norm, y, plus, relu=relu, statistics=statistics)
