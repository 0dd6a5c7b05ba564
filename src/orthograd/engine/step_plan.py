"""Launches of an optimizer's step with ⊥Grad on one CUDA device. The kernels are in `step_kernels.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..projection import rounding_of
from .launch import (
    SLOTS,
    TYPES,
    Launch,
    address_tensor,
    are_multiples_of_16,
    division,
    in_pinned_memory,
    is_aligned,
    is_eligible,
    on_its_device,
    pinned_copy,
    row_by_row,
)
from .plan import Pair
from .step_kernels import StepColumn, adamw_kernel, sgd_kernel

# Fastest of those tried on an H200 (`benchmarks/fused_step.py`); smaller than where gradients are only projected.
BLOCK, SMALLEST_CHUNK = 512, 4096
KERNELS = {"plain": sgd_kernel, "momentum": sgd_kernel, "nesterov": sgd_kernel, "adamw": adamw_kernel}
Pace = tuple[float | Tensor, ...]
"""The arguments of a kernel that may differ from step to step, the learning rate first."""


def chunks_of(weight: Tensor) -> tuple[int, int]:
    """Elements per chunk of a weight and its gradient, and the number of chunks."""
    return division(weight.numel(), SMALLEST_CHUNK)


class Stepped(NamedTuple):
    """A weight with its gradient and its optimizer's state, in the weight's dtype; ``copy`` is the weight in another.

    ``steps`` counts earlier steps, in float32. ``number`` is that of the parameter in its optimizer. The ``correction``
    of its projection may be known before the step: see `orthograd.lab.gpu.backward_statistics`.
    """

    gradient: Tensor
    weight: Tensor
    momentum: Tensor | None = None
    square: Tensor | None = None
    steps: Tensor | None = None
    copy: Tensor | None = None
    correction: Tensor | None = None
    is_projected: bool = False
    number: int = 0

    @property
    def is_measured(self) -> bool:
        """True if the step has to compute the correction."""
        return self.is_projected and self.correction is None

    @property
    def in_memory(self) -> list[Tensor]:
        """The tensors that the step reads or writes."""
        return [tensor for tensor in self[:7] if tensor is not None]

    def check(self) -> None:
        """Raise for what the kernels cannot walk through."""
        states = [each for each in (self.momentum, self.square) if each is not None]
        order = [self.gradient, *states, *(() if self.copy is None else (self.copy,))]
        is_known = self.weight.dtype in (torch.float32, torch.bfloat16)
        if not is_known or any(each.dtype != self.weight.dtype for each in states):
            raise ValueError("expected float32 or bfloat16 weights, and their state in the same dtype")
        if any(each.shape != self.weight.shape for each in order):
            shapes = ", ".join(str(tuple(each.shape)) for each in order)
            raise ValueError(f"expected gradient, state and copy of shape {tuple(self.weight.shape)}, got {shapes}")
        if not all(is_eligible(Pair(each, self.weight), rows=False) for each in order):
            raise ValueError("expected gradient, state and copy in the memory order of their weight")


class Rule(NamedTuple):
    """How weights change: by "plain" SGD, "momentum", "nesterov" or "adamw"; ``is_random``: stochastic rounding."""

    name: str
    is_random: bool = False
    renormalize: bool = True


class StepPlan:
    """A step for some tensors. It holds their addresses: valid while they stay in place; see `move_`.

    One launch per dtype of gradients, weights and copies. Gradients and weights are read once to measure them, if they
    are projected and their corrections unknown, and once more to step. The first read is all that ⊥Grad adds. A
    separate ⊥Grad would read them twice and write gradients, and the optimizer would read both again. An ``earlier``
    plan for tensors of the same sizes lends what depends on these alone: a CUDA graph then need not copy it to the
    device in each replay.
    """

    def __init__(
        self, tensors: Sequence[Stepped], rule: Rule, *, reads_rate: bool = False, earlier: StepPlan | None = None
    ):
        launches: dict[Any, list[Stepped]] = defaultdict(list)
        for each in tensors:
            each.check()
            launches[each.gradient.dtype, each.weight.dtype, None if each.copy is None else each.copy.dtype].append(
                each
            )
        self._device = tensors[0].weight.device
        # Not the gradients: they would stay in memory after `zero_grad`.
        self._kept = [tensor for each in tensors for tensor in each[1:7]]
        known = [] if earlier is None else [part.schedule for part in earlier._parts]
        made = (_Part.of(dtypes, own, rule, reads_rate, known) for dtypes, own in launches.items())
        self._parts: list[_Part] = [part for part in made if part is not None]

    def step_(self, pace: Pace) -> None:
        """Update states, weights and copies in place; gradients stay unchanged."""
        with on_its_device(self._device):
            for part in self._parts:
                part.launch(*pace)

    def move_(self, addresses: Mapping[int, int]) -> bool:
        """Serve gradients at other addresses, given by their old ones. False if the plan must be made anew."""
        parts = [part.moved(addresses) for part in self._parts]
        self._parts = [new or old for new, old in zip(parts, self._parts, strict=True)]
        return None not in parts


class _Schedule(NamedTuple):
    """Says what each thread block does, on the host and on the device, for tensors of these sizes."""

    sizes: list[Any]
    host: Tensor
    there: Tensor

    @classmethod
    def of(
        cls, tensors: Sequence[Stepped], divided: Sequence[tuple[int, int]], known: Sequence[_Schedule]
    ) -> _Schedule | None:
        """One of those known, if it was made for the same sizes; None if all tensors are empty."""
        device = tensors[0].weight.device
        numbers = ((each.weight.numel(), each.is_measured) for each in tensors)
        sizes = [device, *zip(numbers, divided, strict=True)]
        for each in known:
            if each.sizes == sizes:
                return each
        entries = list(_entries(tensors, divided))
        return cls(sizes, *in_pinned_memory(entries, device)) if entries else None


class _Part(NamedTuple):
    """The launch for tensors of the same dtypes, its directory on the host and on the device, and other memory."""

    launch: Launch
    gradients: list[int]
    host: Tensor
    there: Tensor
    table: Tensor
    schedule: _Schedule

    @classmethod
    def of(
        cls,
        dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None],
        tensors: Sequence[Stepped],
        rule: Rule,
        reads_rate: bool,
        known: Sequence[_Schedule],
    ) -> _Part | None:
        """The launch; None if all tensors are empty."""
        device = tensors[0].weight.device
        divided = [chunks_of(each.weight) for each in tensors]
        schedule = _Schedule.of(tensors, divided, known)
        if schedule is None:
            return None
        slots = sum(count for each, (_, count) in zip(tensors, divided, strict=True) if each.is_measured)
        table = torch.empty(len(tensors) + slots, 3, dtype=torch.float64, device=device)
        columns, slot = [], len(tensors)  # the first rows of the table are the corrections
        for own, each, division_ in zip(table[: len(tensors)], tensors, divided, strict=True):
            columns.append(_column(each, division_, slot, own))
            slot = columns[-1].end_slot if each.is_measured else slot
        host, there = in_pinned_memory(row_by_row(columns), device)
        are_aligned = all(is_aligned(c, c.gradient, c.weight, c.momentum, c.square, c.copy) for c in columns)
        gradient_type, weight_type, copy_type = dtypes
        last = (
            slots > 0,
            any(each.is_projected for each in tensors),
            *(rule.renormalize, rounding_of(gradient_type), torch.finfo(torch.float32).max),
            *((TYPES[gradient_type], TYPES[weight_type]), are_aligned, BLOCK, SLOTS),
            *(None if copy_type is None else TYPES[copy_type], reads_rate, rule.is_random, rule.name),
        )
        first = there, schedule.there, len(columns), table
        launch = Launch(KERNELS[rule.name], len(schedule.there), first, last)
        return cls(launch, [column.gradient for column in columns], host, there, table, schedule)

    def moved(self, addresses: Mapping[int, int]) -> _Part | None:
        """For gradients at other addresses; None if it must be made anew. In an ordinary loop this runs in every step.

        The directory on the device is changed in place: new memory in each step would move the next gradients.
        """
        new = [addresses[address] for address in self.gradients]
        if not are_multiples_of_16(self.gradients) or not are_multiples_of_16(new):
            return None
        host = pinned_copy(self.host)  # an earlier copy to the device may still read the old
        host[: len(new)] = address_tensor(new)
        self.there.copy_(host, non_blocking=True)
        return self._replace(gradients=new, host=host)


def _column(tensor: Stepped, division_: tuple[int, int], slot: int, own: Tensor) -> StepColumn:
    """The directory entry of a tensor, whose correction is kept in ``own`` unless it is known."""
    gradient, weight, momentum, square, steps, copy_ = (0 if one is None else one.data_ptr() for one in tensor[:6])
    correction = (own if tensor.correction is None else tensor.correction).data_ptr() * tensor.is_projected
    chunk, count = division_
    return StepColumn(
        *(gradient, weight, tensor.weight.numel(), chunk, slot, slot + count * tensor.is_measured, count),
        *(tensor.number, momentum, square, steps, copy_, correction),
    )


def _entries(tensors: Sequence[Stepped], divided: Sequence[tuple[int, int]]) -> Iterator[int]:
    """What each thread block does. Measuring all tensors first is as fast as doing so in parts that fit the cache."""
    for is_stepped in (False, True):
        for index, (each, (_, count)) in enumerate(zip(tensors, divided, strict=True)):
            if is_stepped or each.is_measured:
                yield from (entry(index, part, is_stepped=is_stepped) for part in range(count))


def entry(index: int, part: int, *, is_stepped: bool) -> int:
    """One number for a thread block: the column of its tensor, its chunk, and if it is stepped or measured."""
    return part << 32 | index << 1 | is_stepped
