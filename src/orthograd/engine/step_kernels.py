"""⊥Grad and the step of SGD or AdamW as one Triton kernel for many tensors, without writing gradients.

Sums run in a fixed order: atomics only count thread blocks and signal.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from .kernels import (
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
    _narrowed,
    _store,
    _widened,
)


class StepColumn(NamedTuple):
    """One tensor in the directory; the fields are the rows of the directory, from the top.

    The first fields are those of `Column`, which the kernels of the engine read.
    """

    gradient: int
    weight: int
    length: int
    chunk: int
    first_slot: int  # first_slot … end_slot: its rows in the table of moments; none if the step need not measure it
    end_slot: int
    chunks: int
    number: int  # of the parameter in its optimizer, which chooses its random numbers
    momentum: int = 0  # address of the momentum buffer, or of AdamW's mean gradient
    square: int = 0  # address of AdamW's mean squared gradient
    steps: int = 0  # address of the number of steps before this one, in float32
    copy: int = 0  # address of a copy of the weight in lower precision
    correction: int = 0  # address; 0 if the tensor is not projected
    measured: int = 0  # chunks that have been measured
    is_ready: int = 0  # 1 once the correction is stored
    stepped: int = 0  # chunks that have been stepped


assert StepColumn._fields[:6] == Column._fields[:6]
ROW = StepColumn(*map(tl.constexpr, range(len(StepColumn._fields))))
CHUNKS, NUMBER, MOMENTUM, SQUARE, STEPS = ROW.chunks, ROW.number, ROW.momentum, ROW.square, ROW.steps
COPY, CORRECTION, MEASURED, IS_READY, STEPPED = ROW.copy, ROW.correction, ROW.measured, ROW.is_ready, ROW.stepped


@triton.jit
def sgd_kernel(
    directory, schedule, tensors, table, rate, inertia, decay,
    MEASURES: tl.constexpr, PROJECTS: tl.constexpr, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr,
    LARGEST: tl.constexpr, TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
    COPY_TYPE: tl.constexpr, READS_RATE: tl.constexpr, RANDOM: tl.constexpr, RULE: tl.constexpr,
):  # fmt: skip
    """Project gradients and take SGD's step. RULE: "plain", "momentum" or "nesterov"."""
    if READS_RATE:  # from memory, where it may change between replays of a graph
        rate = tl.load(rate)
    pace = rate, inertia, decay
    _take_part(
        directory, schedule, tensors, table, pace, MEASURES, PROJECTS, RENORMALIZE, ROUNDING, LARGEST, TYPES, ALIGNED,
        BLOCK, SLOTS, COPY_TYPE, RANDOM, RULE,
    )  # fmt: skip


@triton.jit
def adamw_kernel(
    directory, schedule, tensors, table, rate, beta1, rest1, log1, beta2, rest2, log2, epsilon, decay,
    MEASURES: tl.constexpr, PROJECTS: tl.constexpr, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr,
    LARGEST: tl.constexpr, TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
    COPY_TYPE: tl.constexpr, READS_RATE: tl.constexpr, RANDOM: tl.constexpr, RULE: tl.constexpr,
):  # fmt: skip
    """Project gradients and take AdamW's step. RULE is "adamw".

    Arguments arrive in float32, where 1 − β and the power of a β close to 1 would be wrong: so 1 − β (``rest``) and its
    logarithm come from the host.
    """
    if READS_RATE:
        rate = tl.load(rate)
    pace = rate, beta1, rest1, log1, beta2, rest2, log2, epsilon, decay
    _take_part(
        directory, schedule, tensors, table, pace, MEASURES, PROJECTS, RENORMALIZE, ROUNDING, LARGEST, TYPES, ALIGNED,
        BLOCK, SLOTS, COPY_TYPE, RANDOM, RULE,
    )  # fmt: skip


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
def _take_part(
    directory, schedule, tensors, table, pace, MEASURES: tl.constexpr, PROJECTS: tl.constexpr,
    RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr, LARGEST: tl.constexpr, TYPES: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, COPY_TYPE: tl.constexpr, RANDOM: tl.constexpr,
    RULE: tl.constexpr,
):  # fmt: skip
    """Measure or step one chunk: the schedule says which, as `entry` of `step_plan` writes it.

    The last thread block that measures a tensor stores its correction, and those that step it wait for that. A chunk is
    measured by an earlier thread block than those that wait for it. So thread blocks have to start in the order of
    their numbers, or they may wait forever. CUDA does not guarantee this order, but GPUs follow it.
    """
    entry = tl.load(schedule + tl.program_id(0))
    column, part = directory + ((entry >> 1) & 0x7FFFFFFF), entry >> 32
    first, chunks = tl.load(column + FIRST_SLOT * tensors), tl.load(column + CHUNKS * tensors)
    is_measured = first < tl.load(column + END_SLOT * tensors)
    correction = tl.load(column + CORRECTION * tensors).to(tl.pointer_type(tl.float64))
    gradient, weight, length = _chunk(column, tensors, part, TYPES, ALIGNED)
    if (entry & 1) == 1:
        change = 0.0, 0.0, 1.0, False
        if PROJECTS:
            if MEASURES:
                while is_measured & (tl.atomic_add(column + IS_READY * tensors, 0, sem="acquire") == 0):
                    pass
            change = _change(correction)
        _step(
            column, tensors, part, gradient, weight, length, pace, change,
            PROJECTS, LARGEST, TYPES, ALIGNED, BLOCK, COPY_TYPE, RANDOM, RULE,
        )  # fmt: skip
        if MEASURES or RANDOM or RULE == "adamw":  # noqa: SIM102 with `and`, both may be compiled
            if _is_last(column + STEPPED * tensors, chunks):
                tl.store(column + IS_READY * tensors, 0)
                if RANDOM or RULE == "adamw":
                    steps = _steps(column, tensors)
                    tl.store(steps, tl.load(steps) + 1)
    elif MEASURES:
        _store(table, first + part, _moments(gradient, weight, length, BLOCK))
        if _is_last(column + MEASURED * tensors, chunks):
            _leave(correction, _merged(table, first, first + chunks, SLOTS), RENORMALIZE, ROUNDING)
            tl.debug_barrier()
            tl.atomic_xchg(column + IS_READY * tensors, 1, sem="release")


@triton.jit
def _step(
    column, tensors, part, gradient, weight, length, pace, change,
    PROJECTS: tl.constexpr, LARGEST: tl.constexpr, TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
    COPY_TYPE: tl.constexpr, RANDOM: tl.constexpr, RULE: tl.constexpr,
):  # fmt: skip
    """Step one chunk, in float32: that is faster on an H200 than float64."""
    start = part * tl.load(column + CHUNK * tensors)
    momentum, square, copy = weight, weight, weight
    if RULE != "plain":
        momentum = _place(column + MOMENTUM * tensors, start, TYPES[1], ALIGNED)
    if RULE == "adamw":
        square = _place(column + SQUARE * tensors, start, TYPES[1], ALIGNED)
    if COPY_TYPE is not None:
        copy = _place(column + COPY * tensors, start, COPY_TYPE, ALIGNED)
    noise = 0, 0
    if RANDOM or RULE == "adamw":
        steps = tl.load(_steps(column, tensors))
        noise = tl.load(column + NUMBER * tensors), steps
        if RULE == "adamw":
            pace = _paced(pace, steps)
    places = gradient, weight, momentum, square, copy
    whole = length // BLOCK * BLOCK
    for offset in range(0, whole, BLOCK):
        own = offset + tl.arange(0, BLOCK)
        _step_block(places, own, start, length, pace, change, noise, PROJECTS, LARGEST, COPY_TYPE, RANDOM, RULE, False)
    if whole < length:
        own = whole + tl.arange(0, BLOCK)
        _step_block(places, own, start, length, pace, change, noise, PROJECTS, LARGEST, COPY_TYPE, RANDOM, RULE, True)


@triton.jit
def _step_block(
    places, own, start, length, pace, change, noise, PROJECTS: tl.constexpr, LARGEST: tl.constexpr,
    COPY_TYPE: tl.constexpr, RANDOM: tl.constexpr, RULE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    gradient, weight, momentum, square, copy = places
    mask = None
    if MASKED:
        mask = own < length
        g, w = _load_masked(gradient, weight, own, length, tl.float32)
    else:
        g, w = _load(gradient, weight, own, tl.float32)
    m, v = w, w
    if RULE != "plain":
        m = _widened(tl.load(momentum + own, mask=mask), tl.float32)
    if RULE == "adamw":
        v = _widened(tl.load(square + own, mask=mask), tl.float32)
    g = _projected(g, w, change, PROJECTS, LARGEST)
    m, v, w = _stepped(g, w, m, v, pace, RULE)
    draws = 0, 0, 0, 0
    if RANDOM:
        position, step, number, zero = _counters(start + own, noise)
        draws = tl.philox(0, position, step, number, zero)
    if RULE != "plain":
        tl.store(momentum + own, _rounded(m, draws[1], momentum.dtype.element_ty, RANDOM), mask=mask)
    if RULE == "adamw":
        tl.store(square + own, _rounded(v, draws[2], square.dtype.element_ty, RANDOM), mask=mask)
    tl.store(weight + own, _rounded(w, draws[0], weight.dtype.element_ty, RANDOM), mask=mask)
    if COPY_TYPE is not None:
        tl.store(copy + own, w.to(COPY_TYPE), mask=mask)


@triton.jit
def _projected(g, w, change, PROJECTS: tl.constexpr, LARGEST: tl.constexpr):
    if PROJECTS:
        coefficient, remainder, scale, is_changed = change
        projected = tl.fma(-remainder, w, tl.fma(-coefficient, w, g)) * scale
        g = tl.where(is_changed, tl.minimum(tl.maximum(projected, -LARGEST), LARGEST), g)
    return g


@triton.jit
def _stepped(g, w, m, v, pace, RULE: tl.constexpr):
    """Momentum, mean square and weight after a step with the gradient, in float32 as in PyTorch."""
    if RULE == "adamw":
        rate, beta1, rest1, size, beta2, rest2, root, epsilon, decay = pace
        m = beta1 * m + rest1 * g
        v = beta2 * v + rest2 * g * g
        w = w - rate * decay * w
        w = w - size * m / (tl.sqrt(v) / root + epsilon)
    else:
        rate, inertia, decay = pace
        if RULE == "plain":
            w = w - rate * (g + decay * w)
        else:
            g = g + decay * w
            m = inertia * m + g
            if RULE == "nesterov":  # noqa: SIM108 arithmetic beside its equation
                w = w - rate * (g + inertia * m)
            else:
                w = w - rate * m
    return m, v, w


@triton.jit
def _paced(pace, steps):
    """AdamW's pace with its bias corrections for this step, computed in float64 like those of torch."""
    rate, beta1, rest1, log1, beta2, rest2, log2, epsilon, decay = pace
    count = steps.to(tl.float64) + 1
    first = 1 - tl.exp(count * log1)
    second = 1 - tl.exp(count * log2)
    size, root = (rate / first).to(tl.float32), tl.sqrt(second).to(tl.float32)
    return rate, beta1, rest1, size, beta2, rest2, root, epsilon, decay


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
def _leave(correction, moments, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr):
    coefficient, scale, is_finite = _correction(moments, RENORMALIZE, ROUNDING)
    _store(correction, 0, (coefficient, scale, is_finite.to(tl.float64)))


@triton.jit
def _is_last(counter, blocks):
    """True in the last thread block of a tensor to get here, which also resets the counter."""
    tl.debug_barrier()  # all threads have stored their results
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == blocks - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def _place(field, start, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """A pointer to this chunk of the tensor whose address is in a field of the directory."""
    place = tl.load(field).to(tl.pointer_type(TYPE)) + start
    if ALIGNED:
        place = tl.multiple_of(place, 16)
    return place


@triton.jit
def _steps(column, tensors):
    return tl.load(column + STEPS * tensors).to(tl.pointer_type(tl.float32))


@triton.jit
def _counters(position, noise):
    """Counters of the random numbers: an element of a parameter has the same in each run, so that replicas agree."""
    number, steps = noise
    position = position.to(tl.int32)
    zero = position * 0
    return position, zero + steps.to(tl.int32), zero + number.to(tl.int32), zero


@triton.jit
def _rounded(values, bits, TYPE: tl.constexpr, RANDOM: tl.constexpr):
    """Values in another dtype. RANDOM: to one of the two nearest bfloat16, so that the mean is the value itself."""
    if RANDOM and tl.bfloat16 == TYPE:
        whole = values.to(tl.uint32, bitcast=True)
        up = (whole + (bits.to(tl.uint32) & 0xFFFF)) & 0xFFFF0000
        values = tl.where(values - values == 0, up.to(tl.float32, bitcast=True), values)  # infinity and NaN stay
    return _narrowed(values, TYPE)
