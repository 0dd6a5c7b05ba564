"""Where gradients lie on one CUDA device, and the launches that measure and project them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..projection import rounding_of
from . import compilation, kernels
from .dense import Pair, Segment, flattened

# Elements a program reads at a time, and the smallest chunk it is given: the quickest of those tried on an H200.
BLOCK, SMALLEST_CHUNK = 1024, 8192
WARPS = kernels.THREADS.value // 32
# Chunks a tensor, at most: each program of the second launch merges the moments of all its tensor's chunks.
MOST_CHUNKS = 512
SLOTS = 256
# Compiled kernels of older versions may want other arguments than their source has; tried on 3.6.
DIRECT = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 6)
TYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


def is_eligible(pair: Pair, rows: bool) -> bool:
    """Whether the kernels can walk this pair: dtypes they know, one memory order, and rows one after another."""
    gradient, weight = pair
    is_known = gradient.dtype in TYPES and weight.dtype in TYPES
    in_order = not rows or len(gradient) < 2 or gradient.stride(0) * len(gradient) == gradient.numel()
    return is_known and in_order and flattened(gradient, weight) is not None


class Plan:
    """The directory of some segments in device memory. It holds addresses: good while the tensors stay in place.

    With ``rows`` each row of each tensor is projected for itself. With ``merge`` the table of moments has one
    row per segment, to be reduced over ranks; without, one per chunk, and the second launch merges them.
    """

    holds_addresses = True

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, rows: bool = False, merge: bool = False):
        self.device, self.rows = segments[0][0].gradient.device, rows
        chunks = [[(pair, *division(pair, rows)) for pair in pairs] for pairs in segments]
        self.ends = [0]
        for parts in chunks:
            self.ends.append(self.ends[-1] + sum(count for _, _, count in parts))
        most = max(end - first for first, end in zip(self.ends, self.ends[1:], strict=False))
        self.merges = not rows and (merge or most > MOST_CHUNKS)
        columns: dict[Any, list[list[int]]] = defaultdict(list)
        for number, parts in enumerate(chunks):
            slot = self.ends[number]
            shared = [number, number + 1] if self.merges else self.ends[number : number + 2]
            for (gradient, weight), length, count in parts:
                launch = columns[gradient.dtype, weight.dtype]
                first_program = launch[-1][-1] if launch else 0
                column = [gradient.data_ptr(), weight.data_ptr(), gradient.numel(), length, first_program, slot]
                launch.append([*column, *shared, first_program + count])
                slot += count
        self._prepare(columns, renormalize)

    def _prepare(self, columns: dict[Any, list[list[int]]], renormalize: bool) -> None:
        numbers = [
            value for launch in columns.values() for row in list(zip(*launch, strict=True))[:-1] for value in row
        ]
        self._memory = in_pinned_memory(numbers + self.ends, self.device)
        *directories, ends = self._memory[1].split([8 * len(c) for c in columns.values()] + [len(self.ends)])
        self._merge = Launch(kernels.merge_kernel, len(self.ends) - 1, (ends,), (SLOTS,))
        self._measure, self._apply = [], []
        for directory, ((kind, weight_kind), launch) in zip(directories, columns.items(), strict=True):
            programs, first = launch[-1][-1], (directory, len(launch))
            if programs == 0:
                continue  # nothing but empty tensors
            is_aligned = all(c[0] % 16 == c[1] % 16 == 0 and (c[3] % 16 == 0 or c[3] >= c[2]) for c in launch)
            walk = ((TYPES[kind], TYPES[weight_kind]), is_aligned, BLOCK)
            finish = (renormalize, rounding_of(kind), torch.finfo(kind).max)
            if self.rows:
                self._apply.append(Launch(kernels.rows_kernel, programs, first, (*finish, *walk)))
            else:
                self._measure.append(Launch(kernels.moments_kernel, programs, first, walk))
                self._apply.append(Launch(kernels.apply_kernel, programs, first, (*finish, *walk, SLOTS)))

    def project_(self) -> None:
        """Replace each gradient by what ⊥Grad makes of it: two launches, or one where every row stands for itself."""
        with on_its_device(self.device):
            if self.rows:
                for launch in self._apply:
                    launch()
            else:
                self.apply_(self.measure())

    def measure(self) -> Tensor:
        """The table of moments: one row per segment if the plan merges, else one per chunk."""
        table = torch.empty(self.ends[-1], 3, dtype=torch.float64, device=self.device)
        for launch in self._measure:
            launch(table)
        if not self.merges:
            return table
        out = torch.empty(len(self.ends) - 1, 3, dtype=torch.float64, device=self.device)
        self._merge(table, out)
        return out

    def apply_(self, table: Tensor) -> None:
        """Project every gradient in place, by a table of moments."""
        for launch in self._apply:
            launch(table)


class Launch:
    """A kernel with all of its arguments but the tables between the first and the last ones.

    Triton looks at every argument of every launch, which takes a good part of a small network's step. The arguments
    never change their kind here, so the compiled kernel is kept and called directly.
    """

    def __init__(self, kernel: Any, programs: int, first: tuple[Any, ...], last: tuple[Any, ...]):
        self.kernel, self.grid, self.first, self.last = kernel, (programs, 1, 1), first, last
        self._direct: Any = None

    def __call__(self, *tables: Tensor) -> None:
        """Launch on the current stream."""
        arguments = (*self.first, *tables, *self.last)
        if self._direct is not None:
            self._direct(*arguments)
            return
        compiled = compilation.launch(self.kernel, self.grid, *arguments, num_warps=WARPS)
        if compiled is not None and DIRECT:  # the interpreter compiles nothing, and what is compiled ahead comes later
            self._direct = compiled[self.grid]


def in_pinned_memory(numbers: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers on the host and on the device. Keep both: at each replay a CUDA graph copies one to the other."""
    host = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host, host.to(device, non_blocking=True)


def division(pair: Pair, rows: bool, smallest: int = SMALLEST_CHUNK) -> tuple[int, int]:
    """Elements a chunk, and chunks, of one pair."""
    elements = pair.gradient.numel()
    if rows:
        return elements // max(1, len(pair.gradient)), len(pair.gradient) if elements else 0
    chunk = max(smallest, -(-elements // MOST_CHUNKS // BLOCK) * BLOCK)
    return chunk, -(-elements // chunk)


def on_its_device(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, whichever that is."""
    is_elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    return torch.cuda.device(device) if is_elsewhere else nullcontext()
