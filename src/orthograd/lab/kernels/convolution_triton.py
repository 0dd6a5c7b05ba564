"""Convolutions as Triton kernels, for GPUs with a tensor memory accelerator (TMA), such as Hopper.

A convolution is a product of weights and pixels, summed over taps and channels. Images are channels last, so the pixels
of a tap are a box of the image, moved by the tap; pixels outside are zeros. cuDNN's kernels minimize the latency of one
convolution. Here several networks share the GPU: each thread block computes a large tile, which takes longer for one
convolution but less GPU time for all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .norm_triton import settled_line


@triton.jit
def convolution_kernel(
    x, w, y, parts, weight, bias, mean, variance, epsilon, plus, images,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, BACK: tl.constexpr, TRANSPOSED: tl.constexpr, MEASURES: tl.constexpr,
    RELU: tl.constexpr, GAIN: tl.constexpr, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """y (images, H, W, O) of x with C channels. BACK: the input gradient of a convolution of stride 1 from O to C.

    Weights for the input gradient may be TRANSPOSED already; otherwise each tile is transposed. As in all kernels here,
    the product is multiplied by a GAIN, which compensates for the truncation of TF32.

    If MEASURES, a thread block stores the mean of each channel over its pixels, and the sum of squared deviations.
    With a norm of known statistics, the result is relu(norm(y) + plus).
    """
    first, n0 = tl.program_id(0) // (O // CHANNELS) * PIXELS, tl.program_id(0) % (O // CHANNELS) * CHANNELS
    total = tl.zeros([CHANNELS, PIXELS], tl.float32)
    for step in range(SIZE * SIZE * (C // DEPTH)):
        tap, c0 = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        pixels = _moved(x, first, tap, c0, H, W, C, SIZE, STRIDE).reshape(PIXELS, DEPTH)
        weights = _weights(w, SIZE * SIZE - 1 - tap if BACK else tap, n0, c0, C, O, BACK and not TRANSPOSED)
        total = tl.dot(weights, pixels.T, total)
    _finish(
        total * GAIN, y, parts, weight, bias, mean, variance, epsilon, plus, images * H * W, first, n0,
        O, MEASURES, RELU, PIXELS, CHANNELS,
    )  # fmt: skip


@triton.jit
def wide_kernel(
    x, w, other_w, y, parts, weight, bias, mean, variance, epsilon, plus, images,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, BACK: tl.constexpr, MEASURES: tl.constexpr,
    RELU: tl.constexpr, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, OTHERS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """`convolution_kernel` with all channels in a thread block: O as a sum of two powers of two, the rest masked."""
    first = tl.program_id(0) * PIXELS
    total, others = tl.zeros([CHANNELS, PIXELS], tl.float32), tl.zeros([OTHERS, PIXELS], tl.float32)
    for step in range(SIZE * SIZE * (C // DEPTH)):
        tap, c0 = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        pixels = _moved(x, first, tap, c0, H, W, C, SIZE, STRIDE).reshape(PIXELS, DEPTH)
        if BACK:
            tap = SIZE * SIZE - 1 - tap
        total = tl.dot(_weights(w, tap, 0, c0, C, O, BACK), pixels.T, total)
        others = tl.dot(_weights(other_w, tap, CHANNELS, c0, C, O, BACK), pixels.T, others)
    _finish(
        total, y, parts, weight, bias, mean, variance, epsilon, plus, images * H * W, first, 0,
        O, MEASURES, RELU, PIXELS, CHANNELS,
    )  # fmt: skip
    _finish(
        others, y, parts, weight, bias, mean, variance, epsilon, plus, images * H * W, first, CHANNELS,
        O, MEASURES, RELU, PIXELS, OTHERS,
    )  # fmt: skip


@triton.jit
def _weights(w, tap, n0, c0, C: tl.constexpr, O: tl.constexpr, IS_TURNED: tl.constexpr):
    """Tile of a tap's weights: output channels by input channels."""
    return w.load([c0, tap * O + n0]).T if IS_TURNED else w.load([n0, tap * C + c0])


@triton.jit
def _finish(
    total, y, parts, weight, bias, mean, variance, epsilon, plus, count, first, n0,
    O: tl.constexpr, MEASURES: tl.constexpr, RELU: tl.constexpr, PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Apply the norm to a tile, channels by pixels, and store it and its statistics."""
    m, n = first + tl.arange(0, PIXELS), n0 + tl.arange(0, CHANNELS)
    places, inside = m[:, None] * O + n[None, :], (m < count)[:, None] & (n < O)[None, :]
    if weight is not None:
        factor, shift = settled_line(weight, bias, mean, variance, epsilon, n, O)
        total = total * factor[:, None] + shift[:, None]
        if plus is not None:
            total += tl.load(plus + places, mask=inside, other=0.0).to(tl.float32).T
        if RELU:
            total = tl.where(total < 0, 0.0, total)
    rounded = total.to(y.dtype.element_ty)
    tl.store(y + places, rounded.T, mask=inside)
    if MEASURES:
        values, own_count = rounded.to(tl.float32), tl.minimum(count - first, PIXELS)
        center = tl.sum(values, 1) / own_count  # values after the last image are zero
        apart = tl.where((m < count)[None, :], values - center[:, None], 0.0)
        own = parts + first // PIXELS * (2 * O) + n
        tl.store(own, center, mask=n < O)
        tl.store(own + O, tl.sum(apart * apart, 1), mask=n < O)


@triton.jit
def merging_kernel(
    parts, mean, scale, running_mean, running_variance, pixels, channels, stretches, length, epsilon, momentum,
    COLUMNS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation of each channel, and running ones, from the thread blocks' statistics."""
    columns, numbers = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, AT_ONCE)
    pivot = tl.load(parts + columns)  # differences from one of the means stay accurate if means are large
    sums = tl.zeros([AT_ONCE, COLUMNS], tl.float32)
    squares = tl.zeros([AT_ONCE, COLUMNS], tl.float32)
    for first in range(0, stretches, AT_ONCE):
        each = first + numbers
        counts = tl.maximum(tl.minimum(pixels - each * length, length), 0).to(tl.float32)[:, None]
        places, inside = parts + each[:, None] * (2 * channels) + columns[None, :], (each < stretches)[:, None]
        apart = tl.where(inside, tl.load(places, mask=inside, other=0.0) - pivot[None, :], 0.0)
        sums += counts * apart
        squares += tl.load(places + channels, mask=inside, other=0.0) + counts * apart * apart
    one, two = tl.sum(sums, 0), tl.sum(squares, 0)
    center, spread = pivot + one / pixels, two - one * one / pixels
    tl.store(mean + columns, center)
    tl.store(scale + columns, 1.0 / tl.sqrt(spread / pixels + epsilon))
    before = tl.load(running_mean + columns)
    tl.store(running_mean + columns, before + momentum * (center - before))
    before = tl.load(running_variance + columns)
    tl.store(running_variance + columns, before + momentum * (spread / (pixels - 1) - before))


@triton.jit
def spreading_kernel(
    output_gradient, w, input_gradient, images,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, SIZE: tl.constexpr, TRANSPOSED: tl.constexpr,
    GAIN: tl.constexpr, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The input gradient, (images, 2H, 2W, O), of a convolution of stride 2 from O to C channels.

    The first and last row of taps read pixels in odd rows, the middle one those in even rows; the same for columns. So
    pixels have four parities, and a thread block has one of them.
    """
    parity = 3 - tl.program_id(0) % 4  # those with the most taps first
    odd_y, odd_x = parity // 2, parity % 2
    first = tl.program_id(0) // (4 * (O // CHANNELS)) * PIXELS
    n0 = tl.program_id(0) // 4 % (O // CHANNELS) * CHANNELS
    image, row = first // (H * W), first // W % H
    total = tl.zeros([CHANNELS, PIXELS], tl.float32)
    taps = (1 + odd_y) * (1 + odd_x)
    if SIZE == 1:
        taps = tl.where(parity == 0, 1, 0)
    for step in range(taps * (C // DEPTH)):
        tap, c0 = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        below, right = odd_y - tap // (1 + odd_x), odd_x - tap % (1 + odd_x)
        weight = 0
        if SIZE == 3:
            weight = (1 + odd_y - 2 * below) * 3 + (1 + odd_x - 2 * right)
        pixels = output_gradient.load([image, row + below, right, c0]).reshape(PIXELS, DEPTH)
        total = tl.dot(_weights(w, weight, n0, c0, C, O, not TRANSPOSED), pixels.T, total)
    m, n = first + tl.arange(0, PIXELS), n0 + tl.arange(0, CHANNELS)
    places = (m // W * 2 + odd_y) * (2 * W) + m % W * 2 + odd_x
    values, inside = (total * GAIN).T.to(input_gradient.dtype.element_ty), (m < images * H * W)[:, None]
    tl.store(input_gradient + places[:, None] * O + n[None, :], values, mask=inside)


@triton.jit
def transposing_kernel(w, out, taps, C: tl.constexpr, O: tl.constexpr, SIDE: tl.constexpr):
    """Transpose weights (C, taps, O) to (O, taps, C), one tile of a tap per thread block."""
    tile, tap = tl.program_id(0), tl.program_id(1)
    c = tile % (C // SIDE) * SIDE + tl.arange(0, SIDE)
    o = tile // (C // SIDE) * SIDE + tl.arange(0, SIDE)
    values = tl.load(w + (c[:, None] * taps + tap) * O + o[None, :])
    tl.store(out + (o[:, None] * taps + tap) * C + c[None, :], values.T)


@triton.jit
def weight_gradient_kernel(
    x, output_gradient, parts, length,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Weight gradient (stretches, O, SIZE, SIZE, C) by stretch of pixels, one tile of a tap per thread block."""
    TILES: tl.constexpr = (O // OUTPUTS) * (C // INPUTS) * SIZE * SIZE
    tile, stretch = tl.program_id(0) % TILES, tl.program_id(0) // TILES
    c0, o0 = tile % (C // INPUTS) * INPUTS, tile // (C // INPUTS) % (O // OUTPUTS) * OUTPUTS
    tap = tile // ((C // INPUTS) * (O // OUTPUTS))
    total = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    for first in range(stretch * length, stretch * length + length, DEPTH):
        pixels = _moved(x, first, tap, c0, H, W, C, SIZE, STRIDE).reshape(DEPTH, INPUTS)
        total = tl.dot(output_gradient.load([first, o0]).T, pixels, total)
    o, c = o0 + tl.arange(0, OUTPUTS), tap * C + c0 + tl.arange(0, INPUTS)
    places = stretch * (O * SIZE * SIZE * C) + o[:, None] * (SIZE * SIZE * C) + c[None, :]
    tl.store(parts + places, total.to(parts.dtype.element_ty))


@triton.jit
def adding_kernel(parts, out, length, stretches, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    """The sum of all stretches, always in the same order."""
    own, numbers = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, AT_ONCE)
    total = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    for first in range(0, stretches, AT_ONCE):
        inside = (first + numbers < stretches)[:, None] & (own < length)[None, :]
        total += tl.load(parts + (first + numbers)[:, None] * length + own[None, :], mask=inside, other=0.0)
    tl.store(out + own, tl.sum(total, 0).to(out.dtype.element_ty), mask=own < length)


@triton.jit
def _moved(
    x, first, tap, c0,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Box of x that a tap reads from pixel ``first`` on; with stride 2, every other row and column."""
    image, row = first // (H * W), first // W % H
    down, right = tap // SIZE - SIZE // 2, tap % SIZE - SIZE // 2
    if STRIDE == 1:
        box = x.load([image, row + down, right, c0])
    else:
        box = x.load([image, row + (down + 2) // 2 - 1, (down + 2) % 2, (right + 2) // 2 - 1, (right + 2) % 2 * C + c0])
    return box


@triton.jit
def stem_kernel(
    x, w, y, pixels,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, GAIN: tl.constexpr,
    PIXELS: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    """3 × 3 convolution from few channels: all taps and channels in one product, up to PATCH values."""
    m, n, k = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, O), tl.arange(0, PATCH)
    weights = tl.load(w + n[None, :] * (9 * C) + k[:, None], mask=(k < 9 * C)[:, None], other=0.0)
    product = tl.dot(_patches(x, m, k, pixels, H, W, C), weights) * GAIN
    tl.store(y + m[:, None] * O + n[None, :], product.to(y.dtype.element_ty), mask=(m < pixels)[:, None])


@triton.jit
def stem_weight_gradient_kernel(
    x, output_gradient, parts, pixels, length,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, GAIN: tl.constexpr,
    PIXELS: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    """Weight gradient of `stem_kernel`, (stretches, O, 3, 3, C)."""
    n, k = tl.arange(0, O), tl.arange(0, PATCH)
    total = tl.zeros([O, PATCH], tl.float32)
    for first in range(tl.program_id(0) * length, tl.program_id(0) * length + length, PIXELS):
        m = first + tl.arange(0, PIXELS)
        gradients = tl.load(output_gradient + m[:, None] * O + n[None, :], mask=(m < pixels)[:, None], other=0.0)
        total = tl.dot(gradients.T, _patches(x, m, k, pixels, H, W, C), total)
    places = tl.program_id(0) * (O * 9 * C) + n[:, None] * (9 * C) + k[None, :]
    tl.store(parts + places, total * GAIN, mask=(k < 9 * C)[None, :])


@triton.jit
def _patches(x, m, k, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr):
    """Values around each pixel, in the order of the weights."""
    down, right, c = k // (3 * C) - 1, k // C % 3 - 1, k % C
    rows, columns = (m // W % H)[:, None] + down[None, :], (m % W)[:, None] + right[None, :]
    inside = (rows >= 0) & (rows < H) & (columns >= 0) & (columns < W) & (m < pixels)[:, None] & (k < 9 * C)[None, :]
    places = (m[:, None] + (down * W + right)[None, :]) * C + c[None, :]
    return tl.load(x + places, mask=inside, other=0.0)
