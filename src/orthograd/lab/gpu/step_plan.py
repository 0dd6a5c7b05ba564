"""Launches of an SGD step with ⊥Grad on one CUDA device, and of the statistics measured in the backward pass.

The kernels are in `step_triton.py`.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...engine.compilation import is_capturing, launch
from ...engine.launch import (
    SLOTS,
    TYPES,
    WARPS,
    Launch,
    division,
    in_pinned_memory,
    is_aligned,
    is_eligible,
    on_its_device,
    row_by_row,
)
from ...engine.plan import Pair
from ...projection import rounding_of
from .step_triton import StepColumn, measuring_kernel, step_kernel

# Fastest of those tried on an H200 (`benchmarks/fused_step.py`); smaller than where gradients are only projected.
BLOCK, SMALLEST_CHUNK = 512, 4096
LARGE = 1 << 15
"""Fewest elements of a weight that gets its own launch in the backward pass."""


def chunks_of(weight: Tensor) -> tuple[int, int]:
    """Elements per chunk of a weight and its gradient, and the number of chunks."""
    return division(weight.numel(), SMALLEST_CHUNK)


class Stepped(NamedTuple):
    """A float32 weight with its gradient and momentum; ``copy`` is the weight in another dtype.

    The ``correction`` of its projection may be known before the step: see `BackwardStatistics`.
    """

    gradient: Tensor
    weight: Tensor
    momentum: Tensor
    copy: Tensor | None = None
    is_projected: bool = False
    correction: Tensor | None = None

    @property
    def is_measured(self) -> bool:
        """True if the step has to compute the correction."""
        return self.is_projected and self.correction is None


class StepPlan:
    """A step for some tensors. It holds their addresses: valid while they stay in place.

    One launch per dtype of gradients and copies. Gradients and weights are read once to measure them, if they are
    projected and their corrections unknown, and once more to step. The first read is all that ⊥Grad adds. A separate
    ⊥Grad would read them twice and write gradients, and the optimizer would read both again.
    """

    def __init__(
        self,
        tensors: Sequence[Stepped],
        *,
        rate: float | Tensor,
        momentum: float,
        decay: float,
        renormalize: bool = True,
    ):
        for each in tensors:
            order = [Pair(each.gradient, each.weight), Pair(each.momentum, each.weight)]
            order += [] if each.copy is None else [Pair(each.copy, each.weight)]
            if each.weight.dtype != torch.float32 or not all(is_eligible(pair, rows=False) for pair in order):
                raise ValueError("expected float32 weights, with gradient, momentum and copy in the same memory order")
        launches: dict[Any, list[Stepped]] = defaultdict(list)
        for each in sorted(tensors, key=lambda each: not each.is_measured):  # the kernel expects these first
            launches[each.gradient.dtype, None if each.copy is None else each.copy.dtype].append(each)
        self._device = tensors[0].weight.device
        self._memory: list[tuple[Tensor, Tensor]] = []
        pace = rate, momentum, decay
        made = (self._launch(dtypes, own, renormalize, pace) for dtypes, own in launches.items())
        self._launches = [each for each in made if each is not None]

    def _launch(
        self,
        dtypes: tuple[torch.dtype, torch.dtype | None],
        tensors: Sequence[Stepped],
        renormalize: bool,
        pace: tuple[float | Tensor, ...],
    ) -> Launch | None:
        """The launch for tensors of the same dtypes; None if all are empty."""
        divided = [chunks_of(each.weight) for each in tensors]
        owners = [index for index, (_, count) in enumerate(divided) for _ in range(count)]
        if not owners:
            return None
        measured = sum(count for each, (_, count) in zip(tensors, divided, strict=True) if each.is_measured)
        corrections, table = torch.empty(len(tensors) + measured, 3, dtype=torch.float64, device=self._device).split(
            [len(tensors), measured]
        )
        columns: list[StepColumn] = []
        slot = 0
        for each, own, (chunk, count) in zip(tensors, corrections, divided, strict=True):
            gradient, weight, momentum, copy = (0 if one is None else one.data_ptr() for one in each[:4])
            correction = (each.correction if each.correction is not None else own).data_ptr() * each.is_projected
            size, slots = (each.weight.numel(), chunk), (slot, slot + count)
            columns.append(StepColumn(gradient, weight, *size, *slots, momentum, copy, correction))
            slot += count
        are_aligned = all(is_aligned(c, c.gradient, c.weight, c.momentum, c.copy) for c in columns)
        numbers = row_by_row(columns)
        self._memory.append(in_pinned_memory(numbers + owners, self._device))
        directory, owners_there = self._memory[-1][1].split([len(numbers), len(owners)])
        first = (directory, owners_there, len(tensors), measured, table, *pace)
        projects = measured > 0, any(each.is_projected for each in tensors)
        finish = renormalize, rounding_of(dtypes[0]), torch.finfo(torch.float32).max
        walk = ((TYPES[dtypes[0]], TYPES[torch.float32]), are_aligned, BLOCK, SLOTS)
        last = (*projects, *finish, *walk, None if dtypes[1] is None else TYPES[dtypes[1]], isinstance(pace[0], Tensor))
        return Launch(step_kernel, measured + len(owners), first, last)

    def step_(self) -> None:
        """Update momenta, weights and copies in place; gradients stay unchanged."""
        with on_its_device(self._device):
            for each in self._launches:
                each()


class _Place(NamedTuple):
    """Buffers to measure a weight, kept as long as graphs may use them: sums by chunk, chunks done, the result."""

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

    def __init__(self, leaves: Mapping[Tensor, Tensor], *, renormalize: bool) -> None:
        """Measure each weight's gradient as soon as its leaf has it; the leaf is the weight or its copy."""
        self._renormalize = renormalize
        self._stream: torch.cuda.Stream | None = None
        self._places: dict[Tensor, _Place] = {}
        self._seen: dict[Tensor, _Seen] = {}
        self._pending_in_graph: bool | None = None  # True if a graph has what is not joined yet; None: nothing is
        for weight, leaf in leaves.items():
            if weight.numel() < LARGE:
                continue
            if weight.is_cuda and self._stream is None:
                # Networks train on streams of default priority. PyTorch has 32 of those and then returns the first
                # again: a capture on one of them may include the work of another network.
                self._stream = torch.cuda.Stream(weight.device, priority=-1)
            _, count = chunks_of(weight)
            table, correction = torch.zeros(count + 1, 3, dtype=torch.float64, device=weight.device).split([count, 1])
            self._places[weight] = _Place(table, torch.zeros((), dtype=torch.int64, device=weight.device), correction)
            leaf.register_post_accumulate_grad_hook(partial(self._measure, weight))

    def correction_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """The correction of a weight's gradient, valid after `join`; None if not measured or changed since."""
        seen, now = self._seen.get(weight), _Seen.now(gradient, weight)
        if seen is None or seen.gradient() is not gradient or seen[1:] != now[1:]:
            return None
        return self._places[weight].correction

    def join(self) -> None:
        """Make the current stream wait for all measurements."""
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
