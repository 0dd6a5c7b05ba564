"""A Triton kernel that reads logits once, where they lie, and writes the values of each prediction in float64.

A thread block takes ROWS rows, and reads LANES classes of each at a time. The arithmetic is that of
`orthograd.calibration.predictions`, with d = z − reference. The reference is the logit of the label: it is known before
the others are read, so that no sum has to be scaled again. If a logit is too far above it, the row is read twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

FAR = tl.constexpr(300.0)
"""Largest |d|: a smaller eᵈ does not count, and a larger one would have no square in float64."""
LARGE = tl.constexpr(1e9)
"""Largest |reference| from which float32 can subtract `FAR`."""
LOG2E = tl.constexpr(1.4426950408889634)
MAGIC = tl.constexpr(6755399441055744.0)
"""1.5 · 2⁵². Added in float64 it rounds a number to an integer, which is in the last bits of the sum."""


@triton.jit(do_not_specialize=["rows", "inner", "classes"])  # so that batches of another size need no other kernel
def predictions_kernel(
    scores, labels, values, before, rows, inner, classes, outer_stride, inner_stride, class_stride,
    ROWS: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, STAGES: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """Confidence, loss, Brier score, entropy, largest |logit| and variance, each a row of ``values`` (6, rows).

    Scores are (outer, inner, classes) with any strides. A label below 0 marks a row that is no sample; its values mean
    nothing. ``before`` counts the classes that precede the label, by score and then by number. Without SPREAD there is
    no variance. Each thread adds EACH classes at a time.
    """
    tiles = tl.cdiv(inner, ROWS)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    line = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    is_row = line < inner
    line = tl.minimum(line, inner - 1)
    row = outer * inner + line
    start = scores + outer * outer_stride + line.to(tl.int64) * inner_stride
    label = tl.load(labels + row).to(tl.int32)
    end = tl.where(tl.max(label, 0) < 0, 0, classes)  # nothing is read if no row is a sample
    own = tl.load(start + tl.maximum(label, 0).to(tl.int64) * class_stride).to(tl.float32)
    reference = own
    sums = _sums(start, class_stride, label, own, own, end, ROWS, LANES, EACH, STAGES, SPREAD, False)
    is_far = (sums[1] - own > FAR) | (tl.abs(own) > LARGE)
    if SPREAD:
        is_far |= own - sums[2] > FAR
    if tl.max((is_far & (label >= 0)).to(tl.int32), 0) > 0:
        reference = tl.where(is_far, sums[1], own)  # other rows get the same sums again
        sums = _sums(start, class_stride, label, own, reference, end, ROWS, LANES, EACH, STAGES, SPREAD, True)
    _store(values + row, is_row, rows, classes, own, reference, sums, SPREAD)
    tl.store(before + row, sums[0], mask=is_row)


@triton.jit
def _store(place, is_row, rows, classes, own, reference, sums, SPREAD: tl.constexpr):
    """Write the values of a prediction from its sums."""
    _, highest, lowest, s, weighted, square, total, spread = sums
    s = tl.where(lowest > float("-inf"), s, float("nan"))  # −∞ would make no other value infinite
    reference = reference.to(tl.float64)
    own_d = own.to(tl.float64) - reference
    log_s = tl.log(s)
    tl.store(place, _exp(highest.to(tl.float64) - reference) / s, mask=is_row)
    tl.store(place + rows, log_s - own_d, mask=is_row)
    brier = (square / s - 2.0 * _exp(tl.where(own_d < -FAR, -FAR, own_d))) / s + 1.0
    tl.store(place + 2 * rows, brier, mask=is_row)
    tl.store(place + 3 * rows, log_s - weighted / s, mask=is_row)
    tl.store(place + 4 * rows, tl.maximum(tl.abs(highest), tl.abs(lowest)).to(tl.float64), mask=is_row)
    if SPREAD:
        tl.store(place + 5 * rows, (spread - total * total / classes) / (classes - 1), mask=is_row)


@triton.jit
def _sums(
    start, stride, label, own, reference, end, ROWS: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    STAGES: tl.constexpr, SPREAD: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """For each row the classes before the label, highest and lowest logit, Σ eᵈ, Σ eᵈ d, Σ e²ᵈ, Σ d and Σ d²."""
    zero = tl.zeros([ROWS, LANES // EACH], tl.float64)
    none = zero.to(tl.float32)
    sums = (none.to(tl.int32), none - float("inf"), none + float("inf"), zero, zero, zero, zero, zero)
    number = tl.arange(0, LANES)[None, :]
    stride = tl.cast(stride, tl.int64)  # the last class of a map can be 2³¹ elements away
    pointers = start[:, None] + number * stride
    label, own, reference = label[:, None], own[:, None], reference[:, None]
    whole = 0
    if not CAREFUL:
        whole = end // LANES * LANES
        for first in tl.range(0, whole, LANES, num_stages=STAGES):  # no mask, so that loads are wide
            z = tl.load(pointers + first * stride).to(tl.float32)
            d = tl.maximum(z, reference - FAR, propagate_nan=tl.PropagateNan.ALL).to(tl.float64) - reference
            sums = _added(sums, z, d, _exp(d), label - first > number, own, EACH, SPREAD)
    for first in tl.range(whole, end, LANES):
        mask = number < end - first
        z = tl.load(pointers + first * stride, mask=mask, other=0.0).to(tl.float32)
        z = tl.where(mask, z, own)
        d = tl.where(mask, z.to(tl.float64) - reference, 0.0)
        e = tl.where(mask, _exp(tl.where(d < -FAR, -FAR, d)), 0.0)
        sums = _added(sums, z, d, e, label - first > number, own, EACH, SPREAD)
    before, highest, lowest, s, weighted, square, total, spread = sums
    before, s, weighted, square = tl.sum(before, 1), tl.sum(s, 1), tl.sum(weighted, 1), tl.sum(square, 1)
    return before, tl.max(highest, 1), tl.min(lowest, 1), s, weighted, square, tl.sum(total, 1), tl.sum(spread, 1)


@triton.jit
def _added(sums, z, d, e, is_lower, own, EACH: tl.constexpr, SPREAD: tl.constexpr):
    """The sums with more classes; ``is_lower`` where the number of the class is below that of the label."""
    before, highest, lowest, s, weighted, square, total, spread = sums
    before += tl.sum(_by_thread(((z > own) | ((z == own) & is_lower)).to(tl.int32), EACH), 2)
    highest = tl.maximum(highest, tl.max(_by_thread(z, EACH), 2))
    lowest = tl.minimum(lowest, tl.min(_by_thread(z, EACH), 2))
    s += tl.sum(_by_thread(e, EACH), 2)
    weighted += tl.sum(_by_thread(e * d, EACH), 2)
    square += tl.sum(_by_thread(e * e, EACH), 2)
    if SPREAD:
        total += tl.sum(_by_thread(d, EACH), 2)
        spread += tl.sum(_by_thread(d * d, EACH), 2)
    return before, highest, lowest, s, weighted, square, total, spread


@triton.jit
def _by_thread(values, EACH: tl.constexpr):
    """The values with those of one thread in the last dimension, to keep one sum instead of many."""
    return tl.reshape(values, [values.shape[0], values.shape[1] // EACH, EACH])


@triton.jit
def _exp(d):
    """eᵈ up to a factor 1 ± 5e-11, exactly 1 for 0: 2ⁿ times a polynomial for 2ᶠ, with n + f = d · log₂ e, |f| ≤ ½."""
    shifted = tl.fma(d, _wide(LOG2E), _wide(MAGIC))
    f = tl.fma(d, _wide(LOG2E), _wide(MAGIC) - shifted)
    power = tl.fma(_wide(1.5196157161053612e-05), f, _wide(0.00015466756430434415))
    power = tl.fma(power, f, _wide(0.0013333935054722658))
    power = tl.fma(power, f, _wide(0.009618038131728993))
    power = tl.fma(power, f, _wide(0.05550410365990248))
    power = tl.fma(power, f, _wide(0.24022651066563186))
    power = tl.fma(power, f, _wide(0.6931471807045327))
    power = tl.fma(power, f, _wide(1.0))
    # n is added to the exponent
    return (power.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)).to(tl.float64, bitcast=True)


@triton.jit
def _wide(value: tl.constexpr):
    """A number in float64; a literal could be rounded to float32."""
    return tl.full((), value, tl.float64)
