"""What a gradient and its weight say of each other, in float64 and without reading anything back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..engine.dense import CHUNK, moments, pieces, row_moments
from ..engine.plan import merged
from ..engine.sharded import is_dtensor
from ..projection import as_real

# Elements a piece on a GPU: it has no cache to stay in, and each piece costs a handful of launches.
GPU_CHUNK = 1 << 22


class Angle(NamedTuple):
    """A gradient and a weight as plain numbers; the cosine is NaN where one of them is zero."""

    weight_norm: float
    gradient_norm: float
    cosine: float

    @classmethod
    def of_moments(cls, square: float, coefficient: float, residual: float) -> Angle:
        """From B = ‖w‖², c = ⟨g, w⟩ / B and R = ‖g − c w‖².

        >>> Angle.of_moments(4.0, 2.0, 9.0)
        Angle(weight_norm=2.0, gradient_norm=5.0, cosine=0.8)
        """
        energy = residual + coefficient**2 * square
        product = coefficient * math.sqrt(square)
        return cls(math.sqrt(square), math.sqrt(energy), product / math.sqrt(energy) if energy and square else math.nan)


def moments_of(gradient: Tensor, weight: Tensor) -> Tensor:
    """(B, c, R) of one parameter."""
    return moments(*real_pair(gradient, weight))


def row_moments_of(gradient: Tensor, weight: Tensor) -> Tensor:
    """(B, c, R) for each row of one parameter, a block of rows at a time."""
    return row_moments(*real_pair(gradient, weight))


def common_moments(table: Sequence[Tensor]) -> Tensor:
    """(B, c, R) of several parameters taken as one vector."""
    return merged(torch.stack([row.to(table[0].device) for row in table]))


def inner_products(vector: Tensor, weight: Tensor, *, minus_weight: bool = False) -> Tensor:
    """(‖w‖², ⟨w, v⟩, ⟨v, w⟩, ‖v‖²); with ``minus_weight`` of v − w, which is exact where v is w after a small step.

    >>> inner_products(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    tensor([ 4.,  8.,  8., 25.], dtype=torch.float64)
    """
    v, w = real_pair(vector, weight)
    wide = torch.float32 if w.device.type == "mps" else torch.float64
    sums = []
    for x, y in pieces(v, w, GPU_CHUNK if w.is_cuda else CHUNK):
        both = torch.stack([y, x]).to(wide).reshape(2, -1)
        if minus_weight:
            both[1].sub_(both[0])
        sums.append((both @ both.T).flatten())  # one product in place of three: calls are what small tensors cost
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)


def real_pair(vector: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both detached, dense and real."""
    dense = vector.detach().to_dense() if vector.layout is not torch.strided else vector.detach()
    return as_real(dense), as_real(weight.detach())


def refuse_shards(name: str, parameter: Tensor) -> None:
    """Raise where a rank holds a part of a parameter alone: its cosine is not the parameter's."""
    if is_dtensor(parameter):
        raise ValueError(
            f"expected whole parameters, got {name} as a DTensor that is spread over ranks: "
            "diagnose or record the network before it is sharded"
        )
