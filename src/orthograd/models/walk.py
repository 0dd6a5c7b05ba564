"""Convolutions and norms as they stand behind one another in residual networks."""

from __future__ import annotations

from torch import Tensor, nn

from .convolution import convolved
from .norm_relu import Ways, norm_relu


def walked(layers: nn.Sequential, x: Tensor, plus: Tensor | None = None, *, relu: bool = False) -> Ways:
    """Layer by layer, each norm with the ReLU behind it; to the last one more may be added, and a ReLU.

    A norm is whatever stands behind a convolution: users put others in the place of batch norms.
    """
    ways, rest, found = (x, x), list(layers), None
    while rest:
        layer = rest.pop(0)
        if rest and not isinstance(rest[0], nn.ReLU):
            y, found = convolved(layer, ways[0], rest[0])
            ways = y, y
            continue
        is_opened = bool(rest)
        rest = rest[1:]
        ways = norm_relu(layer, ways[0], None if rest else plus, relu=is_opened or relu, found=found)
    return ways
