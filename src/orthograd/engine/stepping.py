"""Where the tensors of a step of SGD lie on one CUDA device, and the launches that project and step at once."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..projection import rounding_of
from . import kernels
from .dense import Pair
from .launch import BLOCK, SLOTS, TYPES, Launch, division, in_pinned_memory, is_eligible, on_its_device

# Smaller than where gradients are only projected: of those tried on an H200 (`benchmarks/fused_step.py`) the quickest.
SMALLEST_CHUNK = 4096
# Chunks that are measured between a tensor's last and its step: enough for that last one to be done by then, and few
# enough for all of them to be in the cache.
AHEAD = 256


class Stepped(NamedTuple):
    """A weight in float32, and what belongs to it; ``copy`` follows it in another dtype."""

    gradient: Tensor
    weight: Tensor
    momentum: Tensor
    copy: Tensor | None = None
    is_projected: bool = False


class StepPlan:
    """A step for some tensors. It holds addresses: good while they stay in place.

    Gradients and weights are read from memory once, where tensors are small enough for the cache: measuring them, which
    is all that ⊥Grad adds, brings them there for the step. By itself it would read them twice and write gradients, and
    the optimizer would read both again.
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
        launches: dict[Any, list[list[int]]] = defaultdict(list)
        for each in tensors:
            chunk, count = division(Pair(each.gradient, each.weight), False, SMALLEST_CHUNK)
            launch = launches[each.gradient.dtype, None if each.copy is None else each.copy.dtype]
            first = launch[-1][7] if launch else 0
            gradient, weight, *others = (0 if one is None else one.data_ptr() for one in each[:4])
            slots = first, first + count * each.is_projected
            launch.append([gradient, weight, each.weight.numel(), chunk, *others, *slots, 0, 0, 0])
        self._prepare(launches, tensors[0].weight.device, renormalize, (rate, momentum, decay))

    def _prepare(
        self,
        launches: dict[Any, list[list[int]]],
        device: torch.device,
        renormalize: bool,
        pace: tuple[float | Tensor, ...],
    ) -> None:
        directories = [[value for row in zip(*columns, strict=True) for value in row] for columns in launches.values()]
        schedules = [[value for one in schedule(columns) for value in one] for columns in launches.values()]
        self._memory = in_pinned_memory([value for part in directories + schedules for value in part], device)
        parts = self._memory[1].split([len(part) for part in directories + schedules])
        self._device, self._launches = device, []
        for directory, order, ((kind, copy_kind), columns) in zip(
            parts[: len(launches)], parts[len(launches) :], launches.items(), strict=True
        ):
            is_aligned = all(
                all(place % 16 == 0 for place in (*c[:2], *c[4:6])) and (c[3] % 16 == 0 or c[3] >= c[2])
                for c in columns
            )
            slots = columns[-1][7]
            table = torch.empty(len(columns) + slots, 3, dtype=torch.float64, device=device)
            finish = (slots > 0, renormalize, rounding_of(kind), torch.finfo(torch.float32).max)
            walk = ((TYPES[kind], TYPES[torch.float32]), is_aligned, BLOCK, SLOTS)
            last = (*finish, *walk, None if copy_kind is None else TYPES[copy_kind], isinstance(pace[0], Tensor))
            if len(order):
                first = (directory, order, len(columns), table, table[len(columns) :], *pace)
                self._launches.append(Launch(kernels.step_kernel, len(order) // 2, first, last))

    def step_(self) -> None:
        """Change momenta, weights and copies in place; gradients stay as they are."""
        with on_its_device(self._device):
            for launch in self._launches:
                launch()


def schedule(columns: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """What each program does, as `kernels.step_kernel` reads it: a tensor, and a chunk of it to step, or ~chunk."""
    waiting: deque[tuple[int, int, int]] = deque()
    measured = 0

    def due(until: float) -> Iterator[tuple[int, int]]:
        while waiting and waiting[0][2] <= until:
            number, count, _ = waiting.popleft()
            yield from ((number, part) for part in range(count))

    for number, column in enumerate(columns):
        count, is_projected = -(-column[2] // column[3]), column[7] > column[6]
        if is_projected:
            yield from ((number, ~part) for part in range(count))
            measured += count
        waiting.append((number, count, measured))
        yield from due(measured - AHEAD)
    yield from due(math.inf)
