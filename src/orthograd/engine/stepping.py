"""Where the tensors of a step of SGD lie on one CUDA device, and the launches that project and step at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..projection import rounding_of
from . import kernels
from .dense import Pair
from .launch import BLOCK, SLOTS, TYPES, Launch, Plan, division, in_pinned_memory, is_eligible, on_its_device

ROWS = 10


class Stepped(NamedTuple):
    """A weight in float32, and what belongs to it; ``copy`` follows it in another dtype."""

    gradient: Tensor
    weight: Tensor
    momentum: Tensor
    copy: Tensor | None = None
    is_projected: bool = False


class StepPlan:
    """A step for some tensors. It holds addresses: good while they stay in place.

    Gradients and weights are read once to be measured, if any is projected, and once to step: the first is all that
    ⊥Grad adds. By itself it would read them twice and write gradients, and the optimizer would read both again.
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
        segments = [[Pair(each.gradient, each.weight)] for each in tensors if each.is_projected]
        self._measuring = Plan(segments, renormalize=renormalize) if segments else None
        slots = iter(zip(self._measuring.ends, self._measuring.ends[1:], strict=False) if self._measuring else ())
        columns: dict[Any, list[list[int]]] = defaultdict(list)
        for each in tensors:
            chunk, count = division(Pair(each.gradient, each.weight), rows=False)
            launch = columns[each.gradient.dtype, None if each.copy is None else each.copy.dtype]
            first = launch[-1][-1] if launch else 0
            shared = next(slots) if each.is_projected else (0, 0)
            places = [0 if one is None else one.data_ptr() for one in each[:4]]
            walk = [each.weight.numel(), chunk, first, 0, *shared]
            launch.append([*places[:2], *walk, *places[2:], first + count])
        self._prepare(columns, tensors[0].weight.device, renormalize, (rate, momentum, decay))

    def _prepare(
        self,
        columns: dict[Any, list[list[int]]],
        device: torch.device,
        renormalize: bool,
        pace: tuple[float | Tensor, ...],
    ) -> None:
        numbers = [
            value for launch in columns.values() for row in list(zip(*launch, strict=True))[:-1] for value in row
        ]
        self._memory = in_pinned_memory(numbers, device)
        directories = self._memory[1].split([ROWS * len(launch) for launch in columns.values()])
        self._nothing = torch.zeros(1, 3, dtype=torch.float64, device=device)
        self._launches = []
        for directory, ((kind, copy_kind), launch) in zip(directories, columns.items(), strict=True):
            is_aligned = all(
                all(c[place] % 16 == 0 for place in (0, 1, 8, 9)) and (c[3] % 16 == 0 or c[3] >= c[2]) for c in launch
            )
            projects = any(column[7] > column[6] for column in launch)
            finish = (projects, renormalize, rounding_of(kind), torch.finfo(torch.float32).max)
            walk = ((TYPES[kind], TYPES[torch.float32]), is_aligned, BLOCK, SLOTS)
            last = (*finish, *walk, None if copy_kind is None else TYPES[copy_kind], isinstance(pace[0], Tensor))
            if launch[-1][-1]:
                first = (directory, len(launch), *pace)
                self._launches.append(Launch(kernels.step_kernel, launch[-1][-1], first, last))

    def step_(self) -> None:
        """Change momenta, weights and copies in place; gradients stay as they are."""
        with on_its_device(self._nothing.device):
            table = self._measuring.measure() if self._measuring else self._nothing
            for launch in self._launches:
                launch(table)
