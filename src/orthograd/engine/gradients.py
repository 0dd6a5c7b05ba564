"""The gradients that parameters hold, made ready to be projected in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..options import Options
from .plan import Pair
from .projector import Projector
from .sharded import laid_out_like


def project_gradients_(segments: Sequence[Sequence[Tensor]], options: Options, projector: Projector) -> None:
    """Project the gradients that parameters hold, in place; each segment of parameters is one vector."""
    projector.project_gradients_(segments, lambda: gradient_pairs(segments, options))


def gradient_pairs(segments: Sequence[Sequence[Tensor]], options: Options) -> list[list[Pair]]:
    """The segments as pairs of gradient and weight, without what has no gradient."""
    pairs = [[pair for p in segment if (pair := gradient_pair(p, options))] for segment in segments]
    return [segment for segment in pairs if segment]


def gradient_pair(parameter: Tensor, options: Options) -> Pair | None:
    """The gradient, ready to be changed in place, with its weight; None if there is no gradient.

    Replaces a gradient that cannot be changed in place (expanded, conjugated lazily, laid out over the ranks in
    another way than its parameter) by an equal one that can.
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
    """The rows a sparse gradient holds, and their weights: all there is to project when rows stand alone."""
    if options.granularity != "row" or gradient.layout is not torch.sparse_coo or gradient.sparse_dim() != 1:
        raise ValueError(
            f"a sparse gradient stays sparse under ⊥Grad only row by row: expected a dense gradient for the parameter "
            f"of shape {tuple(parameter.shape)}, or granularity='row' and a gradient sparse in its first dimension, "
            f"got layout {gradient.layout} and granularity={options.granularity!r}. Its param group can have "
            f'"orthogonal": False or "orthogonal": {{"granularity": "row"}}.'
        )
    parameter.grad = gradient = gradient.coalesce()
    return Pair(gradient.values(), parameter.index_select(0, gradient.indices()[0]))
