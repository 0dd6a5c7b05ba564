"""Which parameters ⊥Grad acts on, and which of them count together as one vector."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .engine import Projector, addresses
from .engine.dense import Pair
from .engine.sharded import laid_out_like
from .options import Options

Where = Callable[[str, Tensor], bool]
"""A predicate on the name and the parameter: whether ⊥Grad acts on it."""
Segments = list[list[Tensor]]
"""Parameters; the inner lists are projected as one vector each."""


class Partition:
    """The parameters of param groups by their options. Follows the groups as they change."""

    def __init__(self, options: Options, where: Where | None = None, names: Mapping[int, str] | None = None):
        self.options, self.where, self.names = options, where, dict(names or {})
        self._signature: Any = None
        self._segments: dict[Options, Segments] = {}

    def segments(self, groups: Iterable[dict[str, Any]]) -> dict[Options, Segments]:
        """What to project, afresh only where a group gained parameters or changed its options."""
        groups = list(groups)
        signature = [(repr(group.get("orthogonal")), *map(id, group["params"])) for group in groups]
        if signature != self._signature:
            self._segments = self._divided(groups)
            self._signature = signature
        return self._segments

    def _divided(self, groups: list[dict[str, Any]]) -> dict[Options, Segments]:
        divided: dict[Options, dict[Hashable, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        for number, group in enumerate(groups):
            options = self.options.for_group(group)
            if options is None:
                continue
            names = group.get("param_names") or [self.names.get(id(p), "") for p in group["params"]]
            for name, parameter in zip(names, group["params"], strict=True):
                if self._is_chosen(name, parameter, options):
                    vector = {"group": number, "model": "model"}.get(options.granularity, id(parameter))
                    divided[options][vector].append(parameter)
        return {options: list(vectors.values()) for options, vectors in divided.items()}

    def _is_chosen(self, name: str, parameter: Tensor, options: Options) -> bool:
        if self.where is not None and not self.where(name, parameter):
            return False
        if options.granularity == "row":
            # A bias has one number per neuron: no row to be orthogonal to.
            return parameter.ndim > 1 and (options.scalars or parameter.numel() > len(parameter))
        return options.scalars or parameter.numel() != 1


def project_gradients_(segments: Segments, options: Options, projector: Projector) -> None:
    """Project the gradients that parameters hold, in place."""
    if not segments or not segments[0][0].is_cuda:
        projector.project_(gradient_pairs(segments, options))
        return
    parameters = [parameter for segment in segments for parameter in segment]
    if not projector.project_again_(addresses(segments, [p.grad for p in parameters], parameters)):
        pairs = gradient_pairs(segments, options)  # may put other tensors into .grad
        projector.project_(pairs, addresses(segments, [p.grad for p in parameters], parameters))


def gradient_pairs(segments: Segments, options: Options) -> list[list[Pair]]:
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
