"""Triton kernels that project many tensors at once: one launch computes moments, one changes the gradients in place.

A directory in device memory holds the address of each tensor: one `Column` per tensor, written by
`orthograd.engine.launch`. Each thread block looks up its tensor, so the number of launches does not depend on the
number of tensors, and no scalar leaves the device. The arithmetic is that of `orthograd.engine.plan`, in float64:
squares of 1e±30 neither overflow nor underflow, and sums need no compensation. Sums run in a fixed order, without
atomics.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class Column(NamedTuple):
    """The directory entry of one tensor. The fields are the rows of the directory, from the top.

    A slot is a row of the table of moments. Each thread block writes to its own slot, counted from ``slot`` for the
    first block of the tensor, and projects with the merged moments of ``first_slot`` … ``end_slot``.
    """

    gradient: int  # address
    weight: int  # address
    length: int  # elements
    chunk: int  # elements per thread block
    first_slot: int = 0
    end_slot: int = 0
    slot: int = 0
    first_block: int = 0  # number of the tensor's first thread block


ROW = Column(*map(tl.constexpr, range(len(Column._fields))))
# Kernels can read only such constants as globals.
GRADIENT, WEIGHT, LENGTH, CHUNK = ROW.gradient, ROW.weight, ROW.length, ROW.chunk
FIRST_SLOT, END_SLOT, SLOT, FIRST_BLOCK = ROW.first_slot, ROW.end_slot, ROW.slot, ROW.first_block
# A gradient is nearly parallel to its weight if ‖g‖² is more than this many times ‖g⊥‖².
NEARLY = tl.constexpr(256.0)
# Per thread block: the fastest value tried on an H200.
THREADS = tl.constexpr(128)


@triton.jit
def moments_kernel(directory, tensors, table, TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    """Write (B, c, R) of this thread block's chunk to its slot of the table."""
    column, part = _column(directory, tensors, tl.program_id(0))
    gradient, weight, length = _chunk(column, tensors, part, TYPES, ALIGNED)
    _store(table, tl.load(column + SLOT * tensors) + part, _moments(gradient, weight, length, BLOCK))


@triton.jit
def merge_kernel(ends, table, out, SLOTS: tl.constexpr):
    """Write the merged (B, c, R) of one segment: slots ``ends[segment] … ends[segment + 1]``."""
    segment = tl.program_id(0)
    _store(out, segment, _merged(table, tl.load(ends + segment), tl.load(ends + segment + 1), SLOTS))


@triton.jit
def apply_kernel(
    directory, tensors, table, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr, LARGEST: tl.constexpr,
    TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Project this thread block's chunk of a gradient in place.

    Blocks run backwards: the chunks measured last are still in the cache, and so are the chunks changed last when the
    base optimizer begins with them.
    """
    column, part = _column(directory, tensors, tl.num_programs(0) - 1 - tl.program_id(0))
    gradient, weight, length = _chunk(column, tensors, part, TYPES, ALIGNED)
    first, end = tl.load(column + FIRST_SLOT * tensors), tl.load(column + END_SLOT * tensors)
    moments = _merged(table, first, end, SLOTS)
    _project(gradient, weight, length, moments, RENORMALIZE, ROUNDING, LARGEST, BLOCK)


@triton.jit
def rows_kernel(
    directory, tensors, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr, LARGEST: tl.constexpr,
    TYPES: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Measure and project one row, which is a chunk independent of all others."""
    column, part = _column(directory, tensors, tl.program_id(0))
    gradient, weight, length = _chunk(column, tensors, part, TYPES, ALIGNED)
    moments = _moments(gradient, weight, length, BLOCK)
    _project(gradient, weight, length, moments, RENORMALIZE, ROUNDING, LARGEST, BLOCK)


@triton.jit
def _column(directory, tensors, block):
    """The column of the tensor that a thread block works on, and the number of its chunk."""
    lanes = tl.arange(0, 128)
    firsts = directory + FIRST_BLOCK * tensors
    index = -1
    for start in range(0, tensors, 128):  # the last tensor whose first thread block is not after this one
        first = tl.load(firsts + start + lanes, mask=start + lanes < tensors, other=block + 1)
        index += tl.sum((first <= block).to(tl.int32))
    return directory + index, block - tl.load(firsts + index)


@triton.jit
def _chunk(column, tensors, part, TYPES: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers to this thread block's part of gradient and weight, and its number of elements."""
    chunk = tl.load(column + CHUNK * tensors)
    start = part * chunk
    gradient = tl.load(column + GRADIENT * tensors).to(tl.pointer_type(TYPES[0])) + start
    weight = tl.load(column + WEIGHT * tensors).to(tl.pointer_type(TYPES[1])) + start
    if ALIGNED:  # lets the compiler load 16 bytes at a time
        gradient = tl.multiple_of(gradient, 16)
        weight = tl.multiple_of(weight, 16)
    return gradient, weight, tl.minimum(chunk, tl.load(column + LENGTH * tensors) - start)


@triton.jit
def _moments(gradient, weight, length, BLOCK: tl.constexpr):
    """(B, c, R) of a chunk, from sums about zero; if g is nearly parallel to w, again about the estimated c."""
    guess = tl.full((), 0.0, tl.float64)
    square, shift, residual = guess, guess, guess
    attempt = 0
    while attempt < 3:
        guess += shift
        square, product, total = _sums(gradient, weight, length, guess, BLOCK)
        shift = _ratio(product, square)
        residual = total - shift * product
        attempt = tl.where(residual * NEARLY < total, attempt + 1, 3)
    return square, guess + shift, tl.where(residual < 0, 0.0, residual)  # where, unlike maximum, keeps NaN


@triton.jit
def _sums(gradient, weight, length, guess, BLOCK: tl.constexpr):
    """Sums of w², d w and d² with d = g − guess · w."""
    squares = tl.zeros([THREADS], tl.float64)
    products = tl.zeros([THREADS], tl.float64)
    residuals = tl.zeros([THREADS], tl.float64)
    whole = length // BLOCK * BLOCK
    for offset in range(0, whole, BLOCK):  # no mask, so that loads are wide
        g, w = _load(gradient, weight, offset + tl.arange(0, BLOCK), tl.float64)
        squares, products, residuals = _added(g, w, guess, squares, products, residuals)
    if whole < length:
        g, w = _load_masked(gradient, weight, whole + tl.arange(0, BLOCK), length, tl.float64)
        squares, products, residuals = _added(g, w, guess, squares, products, residuals)
    return tl.sum(squares), tl.sum(products), tl.sum(residuals)


@triton.jit
def _added(g, w, guess, squares, products, residuals):
    d = tl.fma(-guess, w, g)
    return squares + _by_thread(w * w), products + _by_thread(d * w), residuals + _by_thread(d * d)


@triton.jit
def _by_thread(values):
    """The sum of the values of each thread, to keep one number instead of many."""
    return tl.sum(tl.reshape(values, [THREADS, values.shape[0] // THREADS]), 1)


@triton.jit
def _merged(table, first, end, SLOTS: tl.constexpr):
    lanes = tl.arange(0, SLOTS)
    squares = tl.zeros([SLOTS], tl.float64)
    products = tl.zeros([SLOTS], tl.float64)
    for start in range(first, end, SLOTS):
        square, coefficient, _ = _slots(table, start + lanes, end)
        squares += square
        products += square * coefficient
    square = tl.sum(squares)
    common = _ratio(tl.sum(products), square)
    residuals = tl.zeros([SLOTS], tl.float64)
    for start in range(first, end, SLOTS):
        part, coefficient, residual = _slots(table, start + lanes, end)
        residuals += residual + part * (coefficient - common) * (coefficient - common)
    return square, common, tl.sum(residuals)


@triton.jit
def _project(
    gradient, weight, length, moments, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr, LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """g ← s (g − c w), clamped to the range of the dtype; a gradient that is not finite is unchanged."""
    coefficient, scale, is_changed = _correction(moments, RENORMALIZE, ROUNDING)
    if is_changed:
        whole = length // BLOCK * BLOCK
        for offset in range(0, whole, BLOCK):
            own = offset + tl.arange(0, BLOCK)
            g, w = _load(gradient, weight, own, tl.float64)
            projected = tl.minimum(tl.maximum((g - coefficient * w) * scale, -LARGEST), LARGEST)
            tl.store(gradient + own, _narrowed(projected, gradient.dtype.element_ty))
        own = whole + tl.arange(0, BLOCK)
        g, w = _load_masked(gradient, weight, own, length, tl.float64)
        projected = tl.minimum(tl.maximum((g - coefficient * w) * scale, -LARGEST), LARGEST)
        tl.store(gradient + own, _narrowed(projected, gradient.dtype.element_ty), mask=own < length)


@triton.jit
def _correction(moments, RENORMALIZE: tl.constexpr, ROUNDING: tl.constexpr):
    """c and s of s (g − c w), and True if all moments are finite."""
    square, coefficient, residual = moments
    gradient_square = residual + square * coefficient * coefficient
    is_zero = residual <= ROUNDING * ROUNDING * gradient_square
    scale = tl.where(is_zero, 0.0, gradient_square - gradient_square + 1.0)
    if RENORMALIZE:
        scale = tl.where(is_zero, 0.0, tl.sqrt(gradient_square / residual))
    return coefficient, scale, (gradient_square < float("inf")) & (scale < float("inf"))


@triton.jit
def _load(gradient, weight, offsets, DTYPE: tl.constexpr):
    return _widened(tl.load(gradient + offsets), DTYPE), _widened(tl.load(weight + offsets), DTYPE)


@triton.jit
def _load_masked(gradient, weight, offsets, length, DTYPE: tl.constexpr):
    mask = offsets < length
    g = tl.load(gradient + offsets, mask=mask, other=0.0)
    return _widened(g, DTYPE), _widened(tl.load(weight + offsets, mask=mask, other=0.0), DTYPE)


@triton.jit
def _widened(values, DTYPE: tl.constexpr):
    """Values in another dtype, converted by way of float32: not every Triton converts bfloat16 directly."""
    if values.dtype.primitive_bitwidth < 32:
        values = values.to(tl.float32)
    return values.to(DTYPE)


@triton.jit
def _narrowed(values, TYPE: tl.constexpr):
    if TYPE.primitive_bitwidth < 32:
        values = values.to(tl.float32)
    return values.to(TYPE)


@triton.jit
def _slots(table, slots, end):
    mask = slots < end  # .cg: thread blocks of the same launch may have written them
    square = tl.load(table + 3 * slots, mask=mask, other=0.0, cache_modifier=".cg")
    coefficient = tl.load(table + 3 * slots + 1, mask=mask, other=0.0, cache_modifier=".cg")
    return square, coefficient, tl.load(table + 3 * slots + 2, mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def _store(table, slot, moments):
    square, coefficient, residual = moments
    tl.store(table + 3 * slot, square)
    tl.store(table + 3 * slot + 1, coefficient)
    tl.store(table + 3 * slot + 2, residual)


@triton.jit
def _ratio(numerator, denominator):
    """numerator / denominator; zero for a zero weight, which has no direction."""
    return tl.where(denominator == 0, 0.0, numerator / tl.where(denominator == 0, 1.0, denominator))
