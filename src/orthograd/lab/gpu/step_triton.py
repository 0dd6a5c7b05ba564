"""⊥Grad and the SGD step as one Triton kernel.

Sums run in a fixed order: atomics only count thread blocks and signal.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from ...engine.kernels import (
    CHUNK,
    END_SLOT,
    FIRST_SLOT,
    Column,
    _chunk,
    _correction,
    _load,
    _load_masked,
    _merged,
    _moments,
    _store,
)


class StepColumn(NamedTuple):
    """One tensor in the directory; the fields are the rows of the directory, from the top.

    The first fields are those of `Column`, which the kernels of the engine read.
    """

    gradient: int
    weight: int
    length: int
    chunk: int
    first_slot: int
    end_slot: int
    momentum: int  # address of the momentum buffer
    copy: int  # address of a copy of the weight in lower precision
    correction: int  # address; 0 if the tensor is not projected
    measured: int = 0  # chunks that have been measured
    is_ready: int = 0  # 1 once the correction is stored
    stepped: int = 0  # chunks that have been stepped


assert StepColumn._fields[:6] == Column._fields[:6]
ROW = StepColumn(*map(tl.constexpr, range(len(StepColumn._fields))))
MOMENTUM, COPY, CORRECTION = ROW.momentum, ROW.copy, ROW.correction
MEASURED, IS_READY, STEPPED = ROW.measured, ROW.is_ready, ROW.stepped


@triton.jit
def step_kernel(
    directory, owners, tensors, measured, table, rate, inertia, decay,
    MEASURES: tl.constexpr, PROJECTS: tl.constexpr, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr,
    LARGEST: tl.constexpr, TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
    COPY_TYPE: tl.constexpr, READS_RATE: tl.constexpr,
):  # fmt: skip
    """Project gradients and take the SGD step for many tensors in one launch, without writing gradients.

    Chunks are numbered, those to be measured first; ``owners`` has their tensors. The first thread blocks measure, and
    the last one of a tensor stores its correction. The others step a chunk each, after waiting for its correction.
    So thread blocks have to start in the order of their numbers, or they may wait forever. CUDA does not guarantee
    this order, but GPUs follow it. The step is in float32 like the weights, which is faster on an H200 than float64.
    """
    if READS_RATE:  # from memory, where it may change between replays of a graph
        rate = tl.load(rate)
    program = tl.program_id(0)
    is_stepped = program >= measured
    number = tl.where(is_stepped, program - measured, program)
    index = tl.load(owners + number)
    column = directory + index
    first, end = tl.load(column + FIRST_SLOT * tensors), tl.load(column + END_SLOT * tensors)
    part, is_measured = number - first, first < measured
    correction = tl.load(column + CORRECTION * tensors).to(tl.pointer_type(tl.float64))
    gradient, weight, length = _chunk(column, tensors, part, TYPES, ALIGNED)
    if is_stepped:
        change = 0.0, 0.0, 1.0, False
        if PROJECTS:
            if MEASURES:
                while is_measured & (tl.atomic_add(column + IS_READY * tensors, 0, sem="acquire") == 0):
                    pass
            change = _change(correction)
        start = part * tl.load(column + CHUNK * tensors)
        momentum = tl.load(column + MOMENTUM * tensors).to(tl.pointer_type(TYPES[1])) + start
        copy = momentum
        if COPY_TYPE is not None:
            copy = tl.load(column + COPY * tensors).to(tl.pointer_type(COPY_TYPE)) + start
        if ALIGNED:
            momentum, copy = tl.multiple_of(momentum, 16), tl.multiple_of(copy, 16)
        places, pace = (gradient, weight, momentum, copy), (rate, inertia, decay)
        _step(places, length, pace, change, PROJECTS, LARGEST, BLOCK, COPY_TYPE)
        if MEASURES:  # noqa: SIM102 with `and`, both may be compiled
            if _is_last(column + STEPPED * tensors, end - first):
                tl.store(column + IS_READY * tensors, 0)
    elif MEASURES:
        _store(table, number, _moments(gradient, weight, length, BLOCK))
        if _is_last(column + MEASURED * tensors, end - first):
            _leave(correction, _merged(table, first, end, SLOTS), RENORMALIZE, ROUNDING)
            tl.debug_barrier()
            tl.atomic_xchg(column + IS_READY * tensors, 1, sem="release")


@triton.jit
def measuring_kernel(
    gradient, weight, table, counter, correction, length, chunk,
    RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Store the correction of one tensor before its step, one chunk per thread block."""
    part, chunks = tl.program_id(0), tl.num_programs(0)
    start = part.to(tl.int64) * chunk
    _store(table, part, _moments(gradient + start, weight + start, tl.minimum(chunk, length - start), BLOCK))
    if _is_last(counter, chunks):
        _leave(correction, _merged(table, 0, chunks, SLOTS), RENORMALIZE, ROUNDING)


@triton.jit
def _leave(correction, moments, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr):
    coefficient, scale, is_finite = _correction(moments, RENORMALIZE, ROUNDING)
    _store(correction, 0, (coefficient, scale, is_finite.to(tl.float64)))


@triton.jit
def _step(
    places, length, pace, change, PROJECTS: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr,
    COPY_TYPE: tl.constexpr,
):  # fmt: skip
    """Step one chunk, given the addresses of its parts."""
    gradient, weight, momentum, copy = places
    whole = length // BLOCK * BLOCK
    for offset in range(0, whole, BLOCK):
        own = offset + tl.arange(0, BLOCK)
        g, w = _load(gradient, weight, own, tl.float32)
        m, w = _stepped(g, w, tl.load(momentum + own), pace, change, PROJECTS, LARGEST)
        tl.store(momentum + own, m)
        tl.store(weight + own, w)
        if COPY_TYPE is not None:
            tl.store(copy + own, w.to(COPY_TYPE))
    if whole < length:
        own = whole + tl.arange(0, BLOCK)
        mask = own < length
        g, w = _load_masked(gradient, weight, own, length, tl.float32)
        m, w = _stepped(g, w, tl.load(momentum + own, mask=mask, other=0.0), pace, change, PROJECTS, LARGEST)
        tl.store(momentum + own, m, mask=mask)
        tl.store(weight + own, w, mask=mask)
        if COPY_TYPE is not None:
            tl.store(copy + own, w.to(COPY_TYPE), mask=mask)


@triton.jit
def _change(correction):
    """c and s of s (g − c w), and whether to use them: not if the tensor is not projected.

    c is the sum of two float32 numbers: with fused multiply-adds, they round hardly more than c in float64. A c too
    large for float32 is not used.
    """
    is_projected = correction.to(tl.int64) != 0
    exact = tl.load(correction, mask=is_projected, other=0.0, cache_modifier=".cg")
    scale = tl.load(correction + 1, mask=is_projected, other=1.0, cache_modifier=".cg").to(tl.float32)
    is_finite = tl.load(correction + 2, mask=is_projected, other=0.0, cache_modifier=".cg") > 0
    coefficient = exact.to(tl.float32)
    remainder = (exact - coefficient.to(tl.float64)).to(tl.float32)
    return coefficient, remainder, scale, is_finite & (tl.abs(coefficient) < float("inf"))


@triton.jit
def _is_last(counter, blocks):
    """True in the last thread block of a tensor to get here, which also resets the counter."""
    tl.debug_barrier()  # all threads have stored their results
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == blocks - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def _stepped(g, w, m, pace, change, PROJECTS: tl.constexpr, LARGEST: tl.constexpr):
    """Momentum and weight after an SGD step with the projected gradient, in float32 as in PyTorch."""
    rate, inertia, decay = pace
    if PROJECTS:
        coefficient, remainder, scale, is_changed = change
        projected = tl.fma(-remainder, w, tl.fma(-coefficient, w, g)) * scale
        g = tl.where(is_changed, tl.minimum(tl.maximum(projected, -LARGEST), LARGEST), g)
    m = inertia * m + (g + decay * w)
    return m, w - rate * m
