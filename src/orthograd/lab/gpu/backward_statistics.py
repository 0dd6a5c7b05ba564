"""Statistics of gradients for ⊥Grad, measured during the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from ...engine.compilation import is_capturing, launch
from ...engine.launch import SLOTS, WARPS, is_eligible
from ...engine.plan import Pair
from ...engine.step_kernels import measuring_kernel
from ...engine.step_plan import BLOCK, chunks_of
from ...projection import rounding_of

LARGE = 1 << 15
"""Fewest elements of a weight that gets its own launch in the backward pass."""


class _Place(NamedTuple):
    """A weight and buffers to measure it, which graphs may use later: sums by chunk, chunks done, the result."""

    weight: Tensor
    table: Tensor
    counter: Tensor
    correction: Tensor


class _Seen(NamedTuple):
    """The gradient of a correction, the versions of it and its weight, and if a graph computes it."""

    gradient: weakref.ref[Tensor]
    versions: tuple[int, int]
    is_captured: bool

    @classmethod
    def now(cls, gradient: Tensor, weight: Tensor) -> _Seen:
        return cls(weakref.ref(gradient), (gradient._version, weight._version), is_capturing())


class BackwardStatistics:
    """Corrections of large gradients, computed on a separate stream during the backward pass.

    Gradients are still in the cache then, and memory-bound kernels overlap well with matrix products. The step would
    have to read them again. A captured graph has both streams.
    """

    def __init__(self, weights: Mapping[Tensor, Tensor], *, renormalize: bool) -> None:
        """Measure each parameter's gradient when it is ready. Its weight is itself or its master weight."""
        self._renormalize = renormalize
        self._stream: torch.cuda.Stream | None = None
        self._places: dict[Tensor, _Place] = {}
        self._seen: dict[Tensor, _Seen] = {}
        self._pending_in_graph: bool | None = None  # True if a graph has what is not joined yet; None: nothing is
        for parameter, weight in weights.items():
            if weight.numel() < LARGE:
                continue
            if weight.is_cuda and self._stream is None:
                # Networks train on streams of default priority. PyTorch has 32 of those and then returns the first
                # again: a capture on one of them may include the work of another network.
                self._stream = torch.cuda.Stream(weight.device, priority=-1)
            _, count = chunks_of(weight)
            table, correction = torch.zeros(count + 1, 3, dtype=torch.float64, device=weight.device).split([count, 1])
            counter = torch.zeros((), dtype=torch.int64, device=weight.device)
            self._places[parameter] = _Place(weight, table, counter, correction)
            parameter.register_post_accumulate_grad_hook(self._measure)

    def correction_of(self, parameter: Tensor) -> Tensor | None:
        """The correction of a parameter's gradient, valid after `join`; None if not measured or changed since."""
        seen, gradient = self._seen.get(parameter), parameter.grad
        if seen is None or gradient is None or seen.gradient() is not gradient:
            return None
        place = self._places[parameter]
        return place.correction if seen[1:] == _Seen.now(gradient, place.weight)[1:] else None

    def join(self) -> None:
        """Make the current stream wait for all measurements."""
        if self._stream is not None and self._pending_in_graph is is_capturing():
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._pending_in_graph = None

    def _measure(self, parameter: Tensor) -> None:
        gradient, (weight, *places) = parameter.grad, self._places[parameter]
        if gradient is None or not is_eligible(Pair(gradient, weight), rows=False):
            return
        chunk, count = chunks_of(weight)
        how = self._renormalize, rounding_of(gradient.dtype), BLOCK, SLOTS
        self._seen[parameter] = _Seen.now(gradient, weight)
        with self._beside():
            launch(
                measuring_kernel, (count,),
                gradient, weight, *places, weight.numel(), chunk, *how, num_warps=WARPS,
            )  # fmt: skip

    def _beside(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._pending_in_graph = is_capturing()
        return torch.cuda.stream(self._stream)
