"""⊥Grad on the CPU: one pass over a tensor for its sums and one to change its gradient, while it is in the cache.

Most gradients are far from parallel to their weight, and take float32 dot products and one fused multiplication. The
others take the exact path of `orthograd.engine.dense`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from ..projection import rounding_of
from . import dense
from .dense import changed, flattened, pieces
from .plan import Pair, Segment, VectorPlan, merged

# Elements per piece: it stays in the last-level cache for its three dot products. A tensor of up to WHOLE elements is
# one piece, which saves calls; float32 sums of that many products have an error of 4e-6 (measured).
CHUNK, WHOLE = 1 << 20, 5 << 19
# Tensors of up to SMALL elements are copied and projected together, because that is cheaper. TOGETHER is the most
# elements of such a batch, so that float64 temporaries stay under 1 MiB.
SMALL, TOGETHER = 4096, 1 << 14
# cos² of gradient and weight up to which float32 sums leave a radial share below 1e-6.
FAR_FROM_PARALLEL = 0.03
# The same for sums in float64.
WIDE = 1 - 1e-8
# Below this mean, float32 squares become subnormal.
SMALLEST_MEAN_SQUARE = 1e-31
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
KEPT = 0.0, 1.0, False
ONE = {dtype: torch.ones(1, dtype=dtype) for dtype in (torch.float32, torch.float64)}

Moments = tuple[float, float, float]


class CpuPlan(VectorPlan):
    """Segments on the CPU, each projected as one vector."""

    def __init__(self, segments: Sequence[Segment], *, renormalize: bool, merge: bool = False):
        del merge  # the table here has one row per segment anyway
        self.segments, self.renormalize = segments, renormalize

    def project_(self) -> None:
        """Project each gradient in place, one segment after the other."""
        single, small = _sorted_by_size(self.segments)
        for collection in small:
            _project_small_(collection, self.renormalize)
        # Backwards: the first tensors are then still in the cache when the base optimizer begins with them.
        for pairs in reversed(single):
            flat = [flattened(*pair) or pair for pair in pairs]
            self._change_(flat, _moments(flat))

    def measure(self) -> Tensor:
        """The table of moments, one row per segment."""
        return torch.tensor([_moments(pairs) for pairs in self.segments], dtype=torch.float64)

    def apply_(self, table: Tensor) -> None:
        """Project each gradient in place, given the table of moments."""
        for pairs, row in zip(self.segments, table.tolist(), strict=True):
            self._change_(pairs, row)

    def _change_(self, pairs: Segment, moments: Sequence[float]) -> None:
        change = _change(moments, self.renormalize, max(rounding_of(pair.gradient.dtype) for pair in pairs))
        for pair in pairs:
            _change_(pair, *change)


def _sorted_by_size(segments: Sequence[Segment]) -> tuple[list[Segment], list[list[Pair]]]:
    """Segments to project one by one, and batches of small tensors of one dtype to project together."""
    single: list[Segment] = []
    small: dict[torch.dtype, list[list[Pair]]] = defaultdict(lambda: [[]])
    room: dict[torch.dtype, int] = defaultdict(lambda: TOGETHER)
    for pairs in segments:
        size, dtype = pairs[0].gradient.numel(), pairs[0].gradient.dtype
        if len(pairs) > 1 or size > SMALL:
            single.append(pairs)
            continue
        if size > room[dtype]:
            small[dtype].append([])
            room[dtype] = TOGETHER
        small[dtype][-1].append(pairs[0])
        room[dtype] -= size
    return single, [collection for collections in small.values() for collection in collections]


def _project_small_(pairs: list[Pair], renormalize: bool) -> None:
    """Project small tensors together, concatenated, since each torch call has a fixed cost."""
    sizes, dtype = [pair.gradient.numel() for pair in pairs], pairs[0].gradient.dtype
    lengths, largest = torch.tensor(sizes), torch.finfo(dtype).max
    g, w = (
        torch.cat([t if t.ndim == 1 else t.flatten() for t in column]).double() for column in zip(*pairs, strict=True)
    )
    factors = ((w, w), (g, w), (g, g))
    sums = (torch.segment_reduce(x * y, "sum", lengths=lengths, unsafe=True).tolist() for x, y in factors)
    changes = []
    for pair, square, product, gradient_square in zip(pairs, *sums, strict=True):
        moments = _from_sums(square, product, gradient_square, WIDE) or dense.moments(*pair).tolist()
        changes.append(_change(moments, renormalize, rounding_of(dtype))[:2])
    c, s = torch.tensor(changes, dtype=torch.float64).repeat_interleave(lengths, dim=0).unbind(1)
    parts = g.addcmul(c, w, value=-1).mul_(s).clamp_(-largest, largest).split(sizes)
    replaced = [(p.gradient, part) for p, part, change in zip(pairs, parts, changes, strict=True) if change != KEPT[:2]]
    targets = [gradient for gradient, _ in replaced]
    if targets:
        torch._foreach_copy_(targets, [part if old.ndim == 1 else part.view_as(old) for old, part in replaced])


def _moments(pairs: Segment) -> Sequence[float]:
    """(B, c, R) of a segment."""
    rows = [_quick_moments(*pair) or dense.moments(*pair).tolist() for pair in pairs]
    return rows[0] if len(rows) == 1 else merged(torch.tensor(rows, dtype=torch.float64)).tolist()


def _quick_moments(gradient: Tensor, weight: Tensor) -> Moments | None:
    """(B, c, R) from float32 dot products summed in float64; None where they are not accurate enough."""
    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    square = product = gradient_square = 0.0
    is_ready = gradient.dtype == weight.dtype == dtype
    size = WHOLE if gradient.numel() <= WHOLE else CHUNK
    for x, y in pieces(gradient, weight, size if is_ready else dense.CHUNK):
        if not is_ready or x.ndim != 1:
            x, y = x.to(dtype).flatten(), y.to(dtype).flatten()
        # One stream from memory at a time, then both from the cache: faster than computing ⟨g, w⟩ first.
        square += torch.dot(y, y).item()
        gradient_square += torch.dot(x, x).item()
        product += torch.dot(x, y).item()
    if min(square, gradient_square) < SMALLEST_MEAN_SQUARE * gradient.numel():
        return None
    return _from_sums(square, product, gradient_square, FAR_FROM_PARALLEL)


def _from_sums(square: float, product: float, gradient_square: float, largest_cosine_square: float) -> Moments | None:
    """(B, c, R) from ‖w‖², ⟨g, w⟩ and ‖g‖²; None if R would lose too many digits."""
    radial_square = product * product / square if square > 0 else math.nan
    if not radial_square <= largest_cosine_square * gradient_square < math.inf:
        return None
    return square, product / square, gradient_square - radial_square


def _change(moments: Sequence[float], renormalize: bool, rounding: float) -> tuple[float, float, bool]:
    """c, s, and True if g − c w cancels: `orthograd.engine.plan.correction` for Python floats."""
    square, c, residual = moments
    radial_square = square * c * c
    gradient_square = residual + radial_square
    if not math.isfinite(gradient_square):
        return KEPT
    is_zero = residual <= rounding * rounding * gradient_square
    s = 0.0 if is_zero else math.sqrt(gradient_square / residual) if renormalize else 1.0
    return c, s, radial_square > FAR_FROM_PARALLEL * gradient_square


def _change_(pair: Pair, c: float, s: float, cancels: bool) -> None:
    """g ← s (g − c w), in place."""
    if (c, s, cancels) == KEPT:
        return
    flat, own = flattened(*pair), pair.gradient.dtype
    # If gradient and weight are many powers of ten apart, float32 can hold both but not their ratio.
    dtype = torch.float64 if cancels or own == torch.float64 or not _fits_float32(s * c) else torch.float32
    if flat is not None and own == pair.weight.dtype == dtype:
        # addr is βM + α(u⊗v): with u = [1] the only torch operation that computes s g − s c w in a single pass.
        flat.gradient.view(1, -1).addr_(ONE[dtype], flat.weight, beta=s, alpha=-s * c)
        return
    for x, y in pieces(*pair, dense.CHUNK):
        x.copy_(changed(x, y, c, s, dtype))


def _fits_float32(number: float) -> bool:
    """True if float32 holds the number with full precision."""
    return number == 0 or SMALLEST <= abs(number) <= LARGEST
