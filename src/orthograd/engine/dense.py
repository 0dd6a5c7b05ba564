"""⊥Grad in plain torch operations on any device, in float64, in place, with no temporary larger than a chunk.

Exact rather than fast: for devices without a special engine, and for the hard cases of those with one. No value is
read back to Python, so the host does not wait for the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..projection import rounding_of
from .plan import Correction, Pair, Plan, Segment, VectorPlan, correction, merged

# Elements per piece: float64 temporaries of 256 KiB, which stay in the cache of a CPU core. At most three are alive at
# once, under 1 MiB in total; smaller pieces are slower.
CHUNK = 1 << 15


class DensePlan(VectorPlan):
    """Segments on any devices, each projected as one vector."""

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, merge: bool = False):
        del merge  # the table here has one row per segment anyway
        self.segments, self.renormalize = segments, renormalize
        self.home = segments[0][0].gradient.device
        self.rounding = max(rounding_of(pair.gradient.dtype) for pairs in segments for pair in pairs)

    def measure(self) -> Tensor:
        """The table of moments, one row per segment."""
        return torch.stack([merged(torch.stack([moments(*p).to(self.home) for p in pairs])) for pairs in self.segments])

    def apply_(self, table: Tensor) -> None:
        """Project each gradient in place, given the table of moments."""
        change = correction(table, renormalize=self.renormalize, rounding=self.rounding)
        for pairs, c, s in zip(self.segments, *change, strict=True):
            for gradient, weight in pairs:
                change_(gradient, weight, c.to(gradient.device), s.to(gradient.device))


class DenseRowsPlan(Plan):
    """Segments on any devices, each row of each tensor projected separately."""

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool):
        self.segments, self.renormalize = segments, renormalize

    def project_(self) -> None:
        """Project each gradient in place."""
        for pair in (pair for pairs in self.segments for pair in pairs):
            project_rows_(*pair, renormalize=self.renormalize)


def moments(gradient: Tensor, weight: Tensor) -> Tensor:
    """(B, c, R) of one pair."""
    return merged(torch.stack([_moments_of_piece(*piece) for piece in pieces(gradient, weight, CHUNK)]))


def _moments_of_piece(gradient: Tensor, weight: Tensor) -> Tensor:
    # A separate function, so that its temporaries are freed before the next piece.
    g, w = (tensor.to(_widest(tensor)).flatten() for tensor in (gradient, weight))
    square = torch.dot(w, w)
    coefficient = torch.dot(g, w) / torch.where(square == 0, 1, square)
    residual = torch.addcmul(g, w, coefficient, value=-1)
    return torch.stack([square, coefficient, torch.dot(residual, residual)])


def change_(gradient: Tensor, weight: Tensor, c: Tensor, s: Tensor) -> None:
    """g ← s (g − c w), in place; c = 0 and s = 1 leave g unchanged, bit for bit."""
    for x, y in pieces(gradient, weight, CHUNK):
        x.copy_(torch.where((c == 0) & (s == 1), x, changed(x, y, c, s, _widest(x)).to(x.dtype)))


def changed(gradient: Tensor, weight: Tensor, c: Tensor | float, s: Tensor | float, dtype: torch.dtype) -> Tensor:
    """s (g − c w) in ``dtype``, clamped to the range of the gradient's dtype, so that finite values stay finite."""
    largest = torch.finfo(gradient.dtype).max
    radial = c * weight.to(dtype)
    return torch.sub(gradient.to(dtype), radial, out=radial).mul_(s).clamp_(-largest, largest)


def project_rows_(gradient: Tensor, weight: Tensor, *, renormalize: bool) -> None:
    """Project every row (slice along the first dimension) separately, a block of rows at a time."""
    for x, y in _blocks(gradient, weight):
        table = _moments_of_block(x, y)
        _change_block_(x, y, *correction(table, renormalize=renormalize, rounding=rounding_of(gradient.dtype)))


def row_moments(gradient: Tensor, weight: Tensor) -> Tensor:
    """The table of moments of one pair, one row for each of its rows."""
    return torch.cat([_moments_of_block(*block) for block in _blocks(gradient, weight)])


def change_rows_(gradient: Tensor, weight: Tensor, change: Correction) -> None:
    """`change_` with a coefficient and a scale for each row."""
    columns = (column.split(_block_size(gradient)) for column in change)
    for (x, y), c, s in zip(_blocks(gradient, weight), *columns, strict=True):
        _change_block_(x, y, c, s)


def _block_size(gradient: Tensor) -> int:
    return max(1, CHUNK * gradient.shape[0] // max(1, gradient.numel()))


def _blocks(gradient: Tensor, weight: Tensor) -> Iterator[Pair]:
    """Blocks of rows: as many as fill a piece, and at least one."""
    return map(Pair, *(tensor.split(_block_size(gradient)) for tensor in (gradient, weight)))


def _moments_of_block(gradient: Tensor, weight: Tensor) -> Tensor:
    g, w = (tensor.to(_widest(tensor)).flatten(1) for tensor in (gradient, weight))
    square = (w * w).sum(1)
    coefficient = (g * w).sum(1) / torch.where(square == 0, 1, square)
    residual = torch.addcmul(g, w, coefficient[:, None], value=-1)
    return torch.stack([square, coefficient, residual.square_().sum(1)], dim=1)


def _change_block_(gradient: Tensor, weight: Tensor, c: Tensor, s: Tensor) -> None:
    c, s = (column.view(-1, *[1] * (gradient.ndim - 1)) for column in (c, s))
    projected = changed(gradient, weight, c, s, _widest(gradient)).to(gradient.dtype)
    gradient.copy_(torch.where((c == 0) & (s == 1), gradient, projected))


def pieces(gradient: Tensor, weight: Tensor, size: int) -> Iterator[Pair]:
    """Matching views of at most ``size`` elements that cover both tensors, flat where the memory layout allows it."""
    flat = flattened(gradient, weight)
    if flat is not None and gradient.numel() <= size:
        yield flat
    elif flat is not None:
        yield from map(Pair, flat.gradient.split(size), flat.weight.split(size))
    elif gradient.numel() <= size:
        yield Pair(gradient, weight)
    else:
        step = max(1, size * gradient.shape[0] // gradient.numel())
        for x, y in zip(gradient.split(step), weight.split(step), strict=True):
            yield from pieces(x.squeeze(0), y.squeeze(0), size)


def flattened(gradient: Tensor, weight: Tensor) -> Pair | None:
    """Both as 1-D views in memory order; None if their memory formats differ or have gaps."""
    if gradient.is_contiguous() and weight.is_contiguous():
        return Pair(gradient, weight) if gradient.ndim == 1 else Pair(gradient.view(-1), weight.view(-1))
    if gradient.stride() == weight.stride() and is_dense(gradient):
        return Pair(*(tensor.as_strided((tensor.numel(),), (1,)) for tensor in (gradient, weight)))
    return None


def is_dense(tensor: Tensor) -> bool:
    """True if the elements fill their memory without gaps or overlap, in any order (channels_last, transposed …)."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _widest(tensor: Tensor) -> torch.dtype:
    """float64, or float32 on Apple GPUs, which have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64
