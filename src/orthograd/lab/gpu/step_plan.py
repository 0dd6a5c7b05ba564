"""The launches of a step of SGD with ⊥Grad on one CUDA device, and of what is measured before, in the backward pass.

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

# Smaller than where gradients are only projected: of those tried on an H200 (`benchmarks/fused_step.py`) the quickest.
BLOCK, SMALLEST_CHUNK = 512, 4096
LARGE = 1 << 15
"""Elements of a weight that is worth a launch of its own in the backward pass."""


def chunks_of(weight: Tensor) -> tuple[int, int]:
    """Elements a chunk of it and of its gradient has, and how many chunks there are."""
    return division(weight.numel(), SMALLEST_CHUNK)


class Stepped(NamedTuple):
    """A weight in float32, and what belongs to it; ``copy`` follows it in another dtype.

    The ``correction`` by which it is projected may be known before the step: see `BackwardStatistics`.
    """

    gradient: Tensor
    weight: Tensor
    momentum: Tensor
    copy: Tensor | None = None
    is_projected: bool = False
    correction: Tensor | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the step has to compute the correction."""
        return self.is_projected and self.correction is None


class StepPlan:
    """A step for some tensors. It holds addresses: good while they stay in place.

    One launch for each kind of gradients and copies. Gradients and weights are read to be measured, where they are
    projected and their corrections not known, and once more to step: the first is all that ⊥Grad adds. By itself it
    would read them twice and write gradients, and the optimizer would read both again.
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
                raise ValueError("expected weights in float32, with all that belongs to them in the same memory order")
        launches: dict[Any, list[Stepped]] = defaultdict(list)
        for each in sorted(tensors, key=lambda each: not each.is_measured):  # these come first, as the kernel wants it
            launches[each.gradient.dtype, None if each.copy is None else each.copy.dtype].append(each)
        self._device = tensors[0].weight.device
        self._memory: list[tuple[Tensor, Tensor]] = []
        pace = rate, momentum, decay
        made = (self._launch(kinds, own, renormalize, pace) for kinds, own in launches.items())
        self._launches = [each for each in made if each is not None]

    def _launch(
        self,
        kinds: tuple[torch.dtype, torch.dtype | None],
        tensors: Sequence[Stepped],
        renormalize: bool,
        pace: tuple[float | Tensor, ...],
    ) -> Launch | None:
        """For tensors of one kind; None where all of them are empty."""
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
        finish = renormalize, rounding_of(kinds[0]), torch.finfo(torch.float32).max
        walk = ((TYPES[kinds[0]], TYPES[torch.float32]), are_aligned, BLOCK, SLOTS)
        last = (*projects, *finish, *walk, None if kinds[1] is None else TYPES[kinds[1]], isinstance(pace[0], Tensor))
        return Launch(step_kernel, measured + len(owners), first, last)

    def step_(self) -> None:
        """Change momenta, weights and copies in place; gradients stay as they are."""
        with on_its_device(self._device):
            for each in self._launches:
                each()


class _Place(NamedTuple):
    """Where a weight is measured, for as long as graphs may do it: by chunks, how many of them are, and the result."""

    table: Tensor
    counter: Tensor
    correction: Tensor


class _Seen(NamedTuple):
    """Of which gradient a correction is, how often it and its weight had been changed, and if a graph computes it."""

    gradient: weakref.ref[Tensor]
    versions: tuple[int, int]
    is_captured: bool

    @classmethod
    def now(cls, gradient: Tensor, weight: Tensor) -> _Seen:
        return cls(weakref.ref(gradient), (gradient._version, weight._version), is_capturing())


class BackwardStatistics:
    """Corrections of large gradients, computed on a stream of their own while the backward pass goes on.

    Gradients are still in the cache then, and kernels that memory bounds go well beside matrix products. The step would
    have to fetch them once more, and wait for that. A graph that is captured has both streams.
    """

    def __init__(self, leaves: Mapping[Tensor, Tensor], *, renormalize: bool) -> None:
        """Measure each weight's gradient as soon as its leaf has it: the weight itself, or its copy."""
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
        """Where that of the weight's gradient will be, if it was measured and neither has changed since."""
        seen, now = self._seen.get(weight), _Seen.now(gradient, weight)
        if seen is None or seen.gradient() is not gradient or seen[1:] != now[1:]:
            return None
        return self._places[weight].correction

    def join(self) -> None:
        """The current stream waits for all measurements."""
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
