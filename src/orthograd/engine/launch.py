"""Directories of gradients on one CUDA device, and the launches that measure and project them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from itertools import accumulate, chain, pairwise
from operator import or_
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..projection import rounding_of
from . import compilation, kernels
from .dense import flattened
from .plan import Pair, Plan, Segment, VectorPlan

# Elements that a thread block reads at a time, and its smallest chunk: the fastest values tried on an H200.
BLOCK, SMALLEST_CHUNK = 1024, 8192
WARPS = kernels.THREADS.value // 32
# Most chunks per tensor: each thread block of the second launch merges the moments of all chunks of its tensor.
MOST_CHUNKS = 512
SLOTS = 256
# In older versions compiled kernels may take other arguments than their source; tested with 3.6.
DIRECT = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 6)
Copied = TypeVar("Copied")
TYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


def is_eligible(pair: Pair, rows: bool) -> bool:
    """True if the kernels can process this pair: known dtypes, one memory order, and contiguous rows."""
    gradient, weight = pair
    is_known = gradient.dtype in TYPES and weight.dtype in TYPES
    in_order = not rows or len(gradient) < 2 or gradient.stride(0) * len(gradient) == gradient.numel()
    return is_known and in_order and flattened(gradient, weight) is not None


class TritonPlan(VectorPlan):
    """Segments on one CUDA device, each projected as one vector. Valid while addresses stay the same; see `moved`."""

    holds_addresses = True

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, merge: bool = False):
        self.device = segments[0][0].gradient.device
        chunks = [[division(pair.gradient.numel()) for pair in pairs] for pairs in segments]
        # Without merge_kernel the table has a row per chunk, and the second launch merges the rows of a segment.
        self.ends = [0, *accumulate(sum(count for _, count in parts) for parts in chunks)]
        most = max(end - first for first, end in pairwise(self.ends))
        self.merges = merge or most > MOST_CHUNKS
        directories = Directories()
        for number, (pairs, parts) in enumerate(zip(segments, chunks, strict=True)):
            slot = self.ends[number]
            first_slot, end_slot = (number, number + 1) if self.merges else self.ends[number : number + 2]
            for pair, (chunk, count) in zip(pairs, parts, strict=True):
                directories.add(pair, chunk, count, slot=slot, first_slot=first_slot, end_slot=end_slot)
                slot += count
        self._directories, ends = directories, directories.copied_to(self.device, self.ends)
        self._measure = directories.launches(kernels.moments_kernel)
        self._merge = Launch(kernels.merge_kernel, len(self.ends) - 1, (ends,), (SLOTS,))
        self._apply = directories.launches(kernels.apply_kernel, renormalize=renormalize, last=(SLOTS,))

    def moved(self, addresses: Mapping[int, int], *, in_place: bool = False) -> TritonPlan | None:
        """See `Plan.moved`. Only addresses are copied to the device."""
        directories = self._directories.moved(addresses, in_place=in_place)
        if directories is None:
            return None
        if in_place:
            return self
        plan = shallow_copy(self)
        plan._directories = directories
        plan._measure, plan._apply = directories.relaunched(self._measure), directories.relaunched(self._apply)
        return plan

    def measure(self) -> Tensor:
        """The table of moments: one row per segment if the plan merges, else one per chunk."""
        with on_its_device(self.device):
            table = torch.empty(self.ends[-1], 3, dtype=torch.float64, device=self.device)
            for launch in self._measure:
                launch(table)
            if not self.merges:
                return table
            out = torch.empty(len(self.ends) - 1, 3, dtype=torch.float64, device=self.device)
            self._merge(table, out)
            return out

    def apply_(self, table: Tensor) -> None:
        """Project each gradient in place, given the table of moments."""
        with on_its_device(self.device):
            for launch in self._apply:
                launch(table)


class TritonRowsPlan(Plan):
    """Tensors on one CUDA device, each row projected separately. Valid while addresses stay the same."""

    holds_addresses = True

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool):
        self.device = segments[0][0].gradient.device
        directories = Directories()
        for gradient, weight in (pair for pairs in segments for pair in pairs):
            count = len(gradient) if gradient.numel() else 0
            directories.add(Pair(gradient, weight), gradient.numel() // max(1, len(gradient)), count)
        directories.copied_to(self.device)
        self._directories = directories
        self._launches = directories.launches(kernels.rows_kernel, renormalize=renormalize)

    def moved(self, addresses: Mapping[int, int], *, in_place: bool = False) -> TritonRowsPlan | None:
        """See `Plan.moved`. Only addresses are copied to the device."""
        directories = self._directories.moved(addresses, in_place=in_place)
        if directories is None:
            return None
        if in_place:
            return self
        plan = shallow_copy(self)
        plan._directories, plan._launches = directories, directories.relaunched(self._launches)
        return plan

    def project_(self) -> None:
        """Project each gradient in place, in one launch, since rows are independent."""
        with on_its_device(self.device):
            for launch in self._launches:
                launch()


class Directories:
    """The addresses of a plan's tensors: a directory, and so a launch, for each pair of dtypes."""

    def __init__(self) -> None:
        self._columns: dict[tuple[torch.dtype, torch.dtype], list[kernels.Column]] = defaultdict(list)
        self._blocks: dict[tuple[torch.dtype, torch.dtype], int] = defaultdict(int)
        self._gradients: list[int] = []
        """Addresses of the gradients, directory after directory."""

    def add(self, pair: Pair, chunk: int, count: int, **slots: int) -> None:
        """Add a tensor of ``count`` chunks with ``chunk`` elements each."""
        dtypes, addresses = (pair.gradient.dtype, pair.weight.dtype), (pair.gradient.data_ptr(), pair.weight.data_ptr())
        column = kernels.Column(*addresses, pair.gradient.numel(), chunk, first_block=self._blocks[dtypes], **slots)
        self._columns[dtypes].append(column)
        self._blocks[dtypes] += count

    def copied_to(self, device: torch.device, more: Sequence[int] = ()) -> Tensor:
        """Copy all directories and ``more`` numbers to the device, and return the latter there.

        Keep this object alive while kernels may read them.
        """
        numbers = [row_by_row(columns) for columns in self._columns.values()]
        self._lengths = [*map(len, numbers), len(more)]
        self._gradients = [column.gradient for columns in self._columns.values() for column in columns]
        self._host, self._there = in_pinned_memory([*chain(*numbers), *more], device)
        *self._places, ends = self._there.split_with_sizes(self._lengths)
        return ends

    @torch.inference_mode(False)
    def moved(self, addresses: Mapping[int, int], *, in_place: bool = False) -> Directories | None:
        """The same directories with other addresses of gradients; None if any address is not aligned.

        In an ordinary loop gradients move with each backward pass, so this runs in every step: it loops over addresses
        only, and makes one small copy. With ``in_place`` it changes this object and the device's memory. On the stream,
        that waits for kernels that still read the old addresses.
        """
        gradients = [addresses[old] for old in self._gradients]
        if not are_multiples_of_16(self._gradients) or not are_multiples_of_16(gradients):
            return None
        there = self if in_place else shallow_copy(self)
        # New pinned memory also in place: an earlier copy to the device may still read the old.
        there._gradients, there._host, new = gradients, pinned_copy(self._host), address_tensor(gradients)
        start = place = 0
        for length, columns in zip(self._lengths, self._columns.values(), strict=False):
            # The first row of a directory.
            there._host[place : place + len(columns)] = new[start : start + len(columns)]
            start, place = start + len(columns), place + length
        if in_place:
            there._there.copy_(there._host, non_blocking=True)
        else:
            there._there = there._host.to(there._there.device, non_blocking=True)
            *there._places, _ = there._there.split_with_sizes(there._lengths)
        return there

    def relaunched(self, launches: Sequence[Launch]) -> list[Launch]:
        """The launches of the original directories, with the arguments of these."""
        places = (place for place, blocks in zip(self._places, self._blocks.values(), strict=True) if blocks)
        return [launch.with_first(place, *launch.first[1:]) for launch, place in zip(launches, places, strict=True)]

    def launches(self, kernel: Any, *, renormalize: bool | None = None, last: tuple[Any, ...] = ()) -> list[Launch]:
        """Launches with a thread block per chunk; ``renormalize`` is for kernels that change gradients."""
        launches = []
        for (dtypes, columns), place in zip(self._columns.items(), self._places, strict=True):
            if self._blocks[dtypes] == 0:
                continue  # only empty tensors
            walk = (
                (*(TYPES[each] for each in dtypes),),
                all(is_aligned(c, c.gradient, c.weight) for c in columns),
                BLOCK,
            )
            finish = renormalize, rounding_of(dtypes[0]), torch.finfo(dtypes[0]).max
            options = walk if renormalize is None else (*finish, *walk)
            launches.append(Launch(kernel, self._blocks[dtypes], (place, len(columns)), (*options, *last)))
        return launches


def row_by_row(columns: Sequence[Sequence[int]]) -> list[int]:
    """A directory as kernels read it: each row holds one field of all columns."""
    return [value for row in zip(*columns, strict=True) for value in row]


def is_aligned(column: Any, *addresses: int) -> bool:
    """True if every chunk of tensors at these addresses begins at a multiple of 16 bytes."""
    return all(address % 16 == 0 for address in addresses) and (column.chunk % 16 == 0 or column.chunk >= column.length)


def are_multiples_of_16(addresses: Sequence[int]) -> bool:
    """True if all are multiples of 16. It loops in C."""
    return reduce(or_, addresses, 0) % 16 == 0


class Launch:
    """A kernel with all arguments bound, except those between the first and the last ones.

    Triton inspects every argument of every launch, which takes much of a small network's step. The types of the
    arguments never change here, so the compiled kernel is kept and called directly.
    """

    def __init__(self, kernel: Any, blocks: int, first: tuple[Any, ...], last: tuple[Any, ...]):
        self.kernel, self.grid, self.first, self.last = kernel, (blocks, 1, 1), first, last
        self._direct: Any = None

    def with_first(self, *first: Any) -> Launch:
        """The same kernel with other first arguments of the same types."""
        launch = shallow_copy(self)
        launch.first = first
        return launch

    def __call__(self, *between: Tensor | float) -> None:
        """Launch on the current stream."""
        arguments = (*self.first, *between, *self.last)
        if self._direct is not None:
            self._direct(*arguments)
            return
        compiled = compilation.launch(self.kernel, self.grid, *arguments, num_warps=WARPS)
        if compiled is not None and DIRECT:  # None in the interpreter and inside compiled_ahead
            self._direct = compiled[self.grid]


def shallow_copy(original: Copied) -> Copied:
    """A new object with the same attributes. `copy.copy` takes many times as long, in every step."""
    new = object.__new__(type(original))
    vars(new).update(vars(original))
    return new


def address_tensor(addresses: Sequence[int]) -> Tensor:
    """The addresses as a tensor on the host. `torch.tensor` takes twice as long."""
    return torch.frombuffer(array("q", addresses), dtype=torch.int64)


def pinned_copy(numbers: Tensor) -> Tensor:
    """A copy on the host, pinned if the numbers are."""
    return torch.empty_like(numbers, pin_memory=numbers.is_pinned()).copy_(numbers)


@torch.inference_mode(False)  # made in that mode, they could not be changed outside of it
def in_pinned_memory(numbers: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers on the host and on the device. Keep both: a CUDA graph copies them at each replay."""
    host = torch.tensor(numbers, dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda")
    return host, host.to(device, non_blocking=True)


def division(elements: int, smallest: int = SMALLEST_CHUNK) -> tuple[int, int]:
    """Elements per chunk, and number of chunks, for a tensor with this many elements."""
    chunk = max(smallest, -(-elements // MOST_CHUNKS // BLOCK) * BLOCK)
    return chunk, -(-elements // chunk)


def on_its_device(device: torch.device) -> AbstractContextManager[object]:
    """Context that makes a device current, since Triton launches on the current device."""
    is_elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    return torch.cuda.device(device) if is_elsewhere else nullcontext()
