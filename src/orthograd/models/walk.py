"""Convolutions, norms and ReLUs as they stand behind one another in residual networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .conv_tiles import is_stem
from .convolution import convolved, is_fused
from .norm_relu import Ways, norm_relu


def walked(layers: nn.Sequential, x: Tensor, plus: Tensor | None = None, *, relu: bool = False) -> Ways:
    """Layer by layer, each norm with the ReLU behind it; to the last one more may be added, and a ReLU.

    A norm is whatever stands behind a convolution: users put others in the place of batch norms.
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
    """relu(norm(conv(x)) + plus), or the same without ReLU: in one launch where the kernels judge."""
    if not torch.is_grad_enabled() and is_fused(layer, x) and not is_stem(layer):
        from .fused_convolution import judged

        all_of_it = judged(layer, norm, x, plus, relu=relu)
        if all_of_it is not None:
            return all_of_it, all_of_it
    y, found = convolved(layer, x, norm)
    return norm_relu(norm, y, plus, relu=relu, found=found)
