"""BatchNorm, ReLU and the sums around them as Triton kernels: two launches forward and two backward.

Images are channels last, so a layer's values are a matrix of pixels by channels. A first launch sums each channel:
every thread block sums a stretch of pixels, and the last one to finish adds the stretches, always in the same order. A
second launch changes all values with these sums. PyTorch's compiler needs three launches each way, and few of them fill
a GPU. In eval mode the statistics are known: the second launch is enough, and can also add two inputs.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def statistics_kernel(
    first, second, total, running_mean, running_variance, mean, scale, parts, counters,
    pixels, channels, stretches, length, epsilon, momentum,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation of each channel, and running ones; if ADDS, of total = first + second."""
    stretch, columns = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    begin, is_channel = stretch * length, columns < channels
    count = tl.minimum(length, pixels - begin).to(tl.float32)
    # Sums of differences from one of the values stay accurate if the mean is large.
    pivot = tl.load(first + begin * channels + columns, mask=is_channel, other=0.0).to(tl.float32)
    if ADDS:
        pivot += tl.load(second + begin * channels + columns, mask=is_channel, other=0.0).to(tl.float32)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, length, ROWS):
        places, inside = _places(begin + start, pixels, channels, columns, ROWS)
        x = tl.load(first + places, mask=inside, other=0.0)
        if ADDS:
            x = (x.to(tl.float32) + tl.load(second + places, mask=inside, other=0.0).to(tl.float32)).to(x.dtype)
            tl.store(total + places, x, mask=inside)
        difference = tl.where(inside, x.to(tl.float32) - pivot[None, :], 0.0)
        sums += difference
        squares += difference * difference
    one, two = tl.sum(sums, 0), tl.sum(squares, 0)
    own = stretch * channels + columns
    tl.store(parts + own, pivot + one / count, mask=is_channel)
    tl.store(parts + stretches * channels + own, two - one * one / count, mask=is_channel)
    if _is_last(counters, stretches):
        numbers = tl.arange(0, PARTS)
        counts = tl.maximum(tl.minimum(length, pixels - numbers * length), 0).to(tl.float32)[:, None]
        means = _column_parts(parts, numbers, columns, channels, stretches)
        spreads = _column_parts(parts + stretches * channels, numbers, columns, channels, stretches)
        center = tl.sum(counts * means, 0) / pixels
        spread = tl.sum(spreads + counts * (means - center[None, :]) * (means - center[None, :]), 0)
        tl.store(mean + columns, center, mask=is_channel)
        tl.store(scale + columns, 1.0 / tl.sqrt(spread / pixels + epsilon), mask=is_channel)
        before = tl.load(running_mean + columns, mask=is_channel)
        tl.store(running_mean + columns, before + momentum * (center - before), mask=is_channel)
        before = tl.load(running_variance + columns, mask=is_channel)
        tl.store(running_variance + columns, before + momentum * (spread / (pixels - 1) - before), mask=is_channel)


@triton.jit
def normalize_kernel(
    values, plus, total, out, weight, bias, mean, scale, pixels, channels, epsilon,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ADDS: tl.constexpr, RELU: tl.constexpr,
    SUMS: tl.constexpr, VARIANCE: tl.constexpr,
):  # fmt: skip
    """relu(norm(values) + plus), or without the ReLU; if SUMS, relu(norm(total)) with total = values + plus.

    ``scale`` is 1 / standard deviation, or the variance if VARIANCE.
    """
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if VARIANCE:
        factor, shift = settled_line(weight, bias, mean, scale, epsilon, columns, channels)
    else:
        factor, shift, _, _ = _line(weight, bias, mean, scale, columns, channels)
    places, inside = _places(tl.program_id(0) * ROWS, pixels, channels, columns, ROWS)
    x = tl.load(values + places, mask=inside)
    if SUMS:
        x = (x.to(tl.float32) + tl.load(plus + places, mask=inside).to(tl.float32)).to(x.dtype)
        tl.store(total + places, x, mask=inside)
    y = x.to(tl.float32) * factor[None, :] + shift[None, :]
    if ADDS:
        y += tl.load(plus + places, mask=inside).to(tl.float32)
    if RELU:
        y = tl.where(y < 0, 0.0, y)  # keeps NaN, as in PyTorch, so that diverged training shows
    tl.store(out + places, y.to(x.dtype), mask=inside)


@triton.jit
def sums_kernel(
    output_gradient, other_gradient, values, out, weight, bias, mean, scale, weight_gradient, bias_gradient,
    parts, counters, pixels, channels, stretches, length,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TWO: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias: Σ g x̂ and Σ g per channel, with the gradient g masked by the ReLU."""
    stretch, columns = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    factor, shift, center, inverse = _line(weight, bias, mean, scale, columns, channels)
    gradients = tl.zeros([ROWS, COLUMNS], tl.float32)
    products = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, length, ROWS):
        places, inside = _places(stretch * length + start, pixels, channels, columns, ROWS)
        x = tl.load(values + places, mask=inside, other=0.0).to(tl.float32)
        g = _behind_relu(output_gradient, other_gradient, out, x, factor, shift, places, inside, TWO, ADDED, RELU)
        gradients += g
        products += g * (x - center[None, :]) * inverse[None, :]
    is_channel = columns < channels
    own = stretch * channels + columns
    tl.store(parts + own, tl.sum(gradients, 0), mask=is_channel)
    tl.store(parts + stretches * channels + own, tl.sum(products, 0), mask=is_channel)
    if _is_last(counters, stretches):
        numbers = tl.arange(0, PARTS)
        sums = _column_parts(parts, numbers, columns, channels, stretches)
        tl.store(bias_gradient + columns, tl.sum(sums, 0), mask=is_channel)
        sums = _column_parts(parts + stretches * channels, numbers, columns, channels, stretches)
        tl.store(weight_gradient + columns, tl.sum(sums, 0), mask=is_channel)


@triton.jit
def input_gradient_kernel(
    output_gradient, other_gradient, values, out, beside, weight, bias, mean, scale,
    weight_gradient, bias_gradient, input_gradient, plus_gradient, pixels, channels,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TWO: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr,
    BESIDE: tl.constexpr,
):  # fmt: skip
    """Gradient of the values, plus ``beside``, and the gradient of ``plus``, which was added after the norm."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = columns < channels
    factor, shift, center, inverse = _line(weight, bias, mean, scale, columns, channels)
    along_weight = tl.load(weight_gradient + columns, mask=is_channel, other=0.0) / pixels
    along_bias = tl.load(bias_gradient + columns, mask=is_channel, other=0.0) / pixels
    places, inside = _places(tl.program_id(0) * ROWS, pixels, channels, columns, ROWS)
    dtype = input_gradient.dtype.element_ty
    x = tl.load(values + places, mask=inside, other=0.0).to(tl.float32)
    g = _behind_relu(output_gradient, other_gradient, out, x, factor, shift, places, inside, TWO, ADDED, RELU)
    if ADDED:
        tl.store(plus_gradient + places, g.to(dtype), mask=inside)
    normal = (x - center[None, :]) * inverse[None, :]
    gradient = factor[None, :] * (g - along_bias[None, :] - normal * along_weight[None, :])
    if BESIDE:
        gradient += tl.load(beside + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(input_gradient + places, gradient.to(dtype), mask=inside)


@triton.jit
def _behind_relu(
    output_gradient, other_gradient, out, x, factor, shift, places, inside,
    TWO: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Output gradient, masked by the ReLU; the sum of two if the output was used twice."""
    g = tl.load(output_gradient + places, mask=inside, other=0.0).to(tl.float32)
    if TWO:
        g += tl.load(other_gradient + places, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        if ADDED:
            g = tl.where(tl.load(out + places, mask=inside, other=0.0) <= 0, 0.0, g)
        else:
            g = tl.where(x * factor[None, :] + shift[None, :] <= 0, 0.0, g)
    return g


@triton.jit
def _line(weight, bias, mean, scale, columns, channels):
    """A norm as a line per channel: its factor and shift, and the mean and 1 / standard deviation behind them."""
    is_channel = columns < channels
    center = tl.load(mean + columns, mask=is_channel, other=0.0)
    inverse = tl.load(scale + columns, mask=is_channel, other=0.0)
    factor = tl.load(weight + columns, mask=is_channel, other=0.0) * inverse
    return factor, tl.load(bias + columns, mask=is_channel, other=0.0) - center * factor, center, inverse


@triton.jit
def settled_line(weight, bias, mean, variance, epsilon, columns, channels):
    """Factor and shift from a known variance."""
    is_channel = columns < channels
    spread = tl.load(variance + columns, mask=is_channel, other=1.0).to(tl.float32)
    factor = tl.load(weight + columns, mask=is_channel, other=0.0) * (1.0 / tl.sqrt(spread + epsilon))
    center = tl.load(mean + columns, mask=is_channel, other=0.0)
    return factor, tl.load(bias + columns, mask=is_channel, other=0.0) - center * factor


@triton.jit
def _places(begin, pixels, channels, columns, ROWS: tl.constexpr):
    rows = begin + tl.arange(0, ROWS)
    inside = (rows < pixels)[:, None] & (columns < channels)[None, :]
    return rows[:, None] * channels + columns[None, :], inside


@triton.jit
def _is_last(counters, stretches):
    """True in the last thread block of these channels to get here, which also resets the counter."""
    counter = counters + tl.program_id(1)
    tl.debug_barrier()  # all threads have stored their parts
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == stretches - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def _column_parts(parts, numbers, columns, channels, stretches):
    inside = (numbers < stretches)[:, None] & (columns < channels)[None, :]
    places = numbers[:, None] * channels + columns[None, :]
    return tl.load(parts + places, mask=inside, other=0.0, cache_modifier=".cg")  # other thread blocks wrote them
