"""Where the tensors of a step of SGD lie on one CUDA device, and the launches that project and step at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...engine.launch import (
    SLOTS,
    TYPES,
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
from .step_triton import StepColumn, step_kernel

# Smaller than where gradients are only projected: of those tried on an H200 (`benchmarks/fused_step.py`) the quickest.
BLOCK, SMALLEST_CHUNK = 512, 4096


def chunks_of(weight: Tensor) -> tuple[int, int]:
    """Elements a chunk of it and of its gradient has, and how many chunks there are."""
    return division(weight.numel(), SMALLEST_CHUNK)


class Stepped(NamedTuple):
    """A weight in float32, and what belongs to it; ``copy`` follows it in another dtype.

    The ``correction`` by which it is projected may be known before the step: see `Watch`.
    """

    gradient: Tensor
    weight: Tensor
    momentum: Tensor
    copy: Tensor | None = None
    is_projected: bool = False
    correction: Tensor | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the step has to find the correction."""
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
        self._launches = [launch for launch in made if launch is not None]

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
            for launch in self._launches:
                launch()
