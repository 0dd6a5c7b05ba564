"""What ⊥Grad wants to know of gradients, found beside the backward pass that makes them, as soon as they are there."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...engine.compilation import is_capturing, launch
from ...engine.launch import SLOTS, WARPS, is_eligible
from ...engine.plan import Pair
from ...projection import rounding_of
from .step_triton import measuring_kernel
from .stepping import BLOCK, chunks_of

LARGE = 1 << 15
"""Elements of a weight that is worth a launch of its own."""


class _Place(NamedTuple):
    """Where a weight is measured, for as long as graphs may do it: by chunks, how many of them are, and the result."""

    table: Tensor
    counter: Tensor
    correction: Tensor


class _Seen(NamedTuple):
    """Of which gradient a correction is, how often it and its weight had been changed, and if a graph is to find it."""

    gradient: weakref.ref[Tensor]
    versions: tuple[int, int]
    is_captured: bool

    @classmethod
    def now(cls, gradient: Tensor, weight: Tensor) -> _Seen:
        return cls(weakref.ref(gradient), (gradient._version, weight._version), is_capturing())


class Watch:
    """Corrections of large gradients, found on a stream of their own while the backward pass goes on.

    Gradients are still in the cache then, and what memory bounds goes well beside products. In the step, they would be
    fetched once more, and the step would wait for it. A graph that is captured has both streams.
    """

    def __init__(self, leaves: Mapping[Tensor, Tensor], *, renormalize: bool) -> None:
        """Watch each weight's leaf: itself, or the copy that gets its gradient."""
        self._renormalize = renormalize
        self._stream: torch.cuda.Stream | None = None
        self._places: dict[Tensor, _Place] = {}
        self._seen: dict[Tensor, _Seen] = {}
        self._pending_in_graph: bool | None = None  # whether a graph holds what was not joined yet; None: nothing
        for weight, leaf in leaves.items():
            if weight.numel() < LARGE:
                continue
            if weight.is_cuda and self._stream is None:
                # Networks train on streams of the usual priority, of which PyTorch has 32 and then hands out the first
                # again: what is captured on one of those may be what another network is using.
                self._stream = torch.cuda.Stream(weight.device, priority=-1)
            _, count = chunks_of(weight)
            table, correction = torch.zeros(count + 1, 3, dtype=torch.float64, device=weight.device).split([count, 1])
            self._places[weight] = _Place(table, torch.zeros((), dtype=torch.int64, device=weight.device), correction)
            leaf.register_post_accumulate_grad_hook(partial(self._measure, weight))

    def correction_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """Where that of the weight's gradient will be, if it was watched and is what it was."""
        seen, now = self._seen.get(weight), _Seen.now(gradient, weight)
        if seen is None or seen.gradient() is not gradient or seen[1:] != now[1:]:
            return None
        return self._places[weight].correction

    def join(self) -> None:
        """The current stream goes on after all that was watched."""
        if self._stream is not None and self._pending_in_graph is is_capturing():
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._pending_in_graph = None

    def _measure(self, weight: Tensor, leaf: Tensor) -> None:
        gradient = leaf.grad
        if gradient is None or not is_eligible(Pair(gradient, weight), rows=False):
            return
        chunk, count = chunks_of(weight)
        how = self._renormalize, rounding_of(gradient.dtype), BLOCK, SLOTS
        self._seen[weight] = _Seen.now(gradient, weight)
        with self._beside():
            launch(
                measuring_kernel, (count,),
                gradient, weight, *self._places[weight], weight.numel(), chunk, *how, num_warps=WARPS,
            )  # fmt: skip

    def _beside(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._pending_in_graph = is_capturing()
        return torch.cuda.stream(self._stream)
