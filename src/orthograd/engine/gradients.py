"""Prepares the gradients of parameters for projection in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..options import Options
from .plan import Pair
from .projector import Projector
from .sharded import laid_out_like


def project_gradients_(segments: Sequence[Sequence[Tensor]], options: Options, projector: Projector) -> None:
    """Project the gradients of parameters in place, each segment as one vector."""
    projector.project_gradients_(segments, lambda: gradient_pairs(segments, options))


def gradient_pairs(segments: Sequence[Sequence[Tensor]], options: Options) -> list[list[Pair]]:
    """The segments as pairs of gradient and weight; parameters without a gradient are left out."""
    pairs = [[pair for p in segment if (pair := gradient_pair(p, options))] for segment in segments]
    return [segment for segment in pairs if segment]


def gradient_pair(parameter: Tensor, options: Options) -> Pair | None:
    """The gradient, writable in place, with its weight; None if there is no gradient.

    Replaces a gradient that cannot be changed in place (expanded, lazily conjugated, or with other placements than its
    parameter) by an equal one that can.
    """
    gradient = parameter.grad
    if gradient is None:
        return None
    if gradient.layout is not torch.strided:
        return _sparse_pair(parameter, gradient, options)
    if type(gradient) is not Tensor and (placed := laid_out_like(parameter, gradient)) is not gradient:
        gradient = parameter.grad = placed
    elif gradient.is_neg() or gradient.is_conj():
        gradient = parameter.grad = gradient.resolve_conj().resolve_neg()
    elif not gradient.is_contiguous() and 0 in gradient.stride():
        gradient = parameter.grad = gradient.clone(memory_format=torch.contiguous_format)
    return Pair(gradient, parameter)


def _sparse_pair(parameter: Tensor, gradient: Tensor, options: Options) -> Pair:
    """The rows that a sparse gradient holds, with their weights: enough to project each row separately."""
    if options.granularity != "row" or gradient.layout is not torch.sparse_coo or gradient.sparse_dim() != 1:
        raise ValueError(
            f"expected a dense gradient for the parameter of shape {tuple(parameter.shape)}, or granularity='row' and "
            f"a gradient that is sparse in its first dimension, got layout {gradient.layout} and "
            f"granularity={options.granularity!r}. Give its param group "
            f'"orthogonal": False or "orthogonal": {{"granularity": "row"}}.'
        )
    parameter.grad = gradient = gradient.coalesce()
    return Pair(gradient.values(), parameter.index_select(0, gradient.indices()[0]))
