"""Convolutions as Triton kernels, for GPUs whose programs fetch boxes of a tensor (TMA), as Hopper's do.

A convolution is a product of weights and pixels, summed over taps and channels. Images lie with their channels last, so
the pixels that a tap sees are a box of the image, moved by the tap; what lies outside comes as zeros. By hand, since
several networks share the GPU: cuDNN divides a small product among all multiprocessors, which is soonest done, and
costs more of their time. Here a program has a large tile for itself, and the rest is left to other networks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .norm_kernels import is_last


@triton.jit
def convolution_kernel(
    x, w, y, images,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, TURNED: tl.constexpr,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """y (images, H, W, O) of x, which has C channels; TURNED: the slopes of a convolution of stride 1 from O to C."""
    first, n0 = tl.program_id(0) // (O // CHANNELS) * PIXELS, tl.program_id(0) % (O // CHANNELS) * CHANNELS
    total = tl.zeros([CHANNELS, PIXELS], tl.float32)
    for step in range(SIZE * SIZE * (C // DEPTH)):
        tap, c0 = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        pixels = _moved(x, first, tap, c0, H, W, C, SIZE, STRIDE).reshape(PIXELS, DEPTH)
        if TURNED:
            weights = w.load([c0, (SIZE * SIZE - 1 - tap) * O + n0]).T
        else:
            weights = w.load([n0, tap * C + c0])
        total = tl.dot(weights, pixels.T, total)
    m, n = first + tl.arange(0, PIXELS), n0 + tl.arange(0, CHANNELS)
    tl.store(y + m[:, None] * O + n[None, :], total.T.to(y.dtype.element_ty), mask=(m < images * H * W)[:, None])


@triton.jit
def spreading_kernel(
    slope, w, of_x, images,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, SIZE: tl.constexpr,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The slopes, (images, 2H, 2W, O), of what a convolution of stride 2 took from O to C channels.

    A pixel in an odd row is seen by the first and last row of taps, one in an even row by the middle one; columns as
    well. So there are four kinds of pixels, and a program has one of them.
    """
    kind = 3 - tl.program_id(0) % 4  # those with the most taps first
    odd_y, odd_x = kind // 2, kind % 2
    first = tl.program_id(0) // (4 * (O // CHANNELS)) * PIXELS
    n0 = tl.program_id(0) // 4 % (O // CHANNELS) * CHANNELS
    image, row = first // (H * W), first // W % H
    total = tl.zeros([CHANNELS, PIXELS], tl.float32)
    taps = (1 + odd_y) * (1 + odd_x)
    if SIZE == 1:
        taps = tl.where(kind == 0, 1, 0)
    for step in range(taps * (C // DEPTH)):
        tap, c0 = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        below, right = odd_y - tap // (1 + odd_x), odd_x - tap % (1 + odd_x)
        weight = 0
        if SIZE == 3:
            weight = (1 + odd_y - 2 * below) * 3 + (1 + odd_x - 2 * right)
        pixels = slope.load([image, row + below, right, c0]).reshape(PIXELS, DEPTH)
        total = tl.dot(w.load([c0, weight * O + n0]).T, pixels.T, total)
    m, n = first + tl.arange(0, PIXELS), n0 + tl.arange(0, CHANNELS)
    places = (m // W * 2 + odd_y) * (2 * W) + m % W * 2 + odd_x
    tl.store(
        of_x + places[:, None] * O + n[None, :], total.T.to(of_x.dtype.element_ty), mask=(m < images * H * W)[:, None]
    )


@triton.jit
def weights_kernel(
    x, slope, of_w, parts, counters, length, stretches,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, DEPTH: tl.constexpr, IS_SPLIT: tl.constexpr,
):  # fmt: skip
    """The slopes of the weights, (O, SIZE, SIZE, C): a program adds up a stretch of pixels for a tile of one tap.

    Where pixels are split, the last program of a tile adds the stretches up, in their order whoever is last.
    """
    TILES: tl.constexpr = (O // OUTPUTS) * (C // INPUTS) * SIZE * SIZE
    tile, stretch = tl.program_id(0) % TILES, tl.program_id(0) // TILES
    c0, o0 = tile % (C // INPUTS) * INPUTS, tile // (C // INPUTS) % (O // OUTPUTS) * OUTPUTS
    tap = tile // ((C // INPUTS) * (O // OUTPUTS))
    total = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    for first in range(stretch * length, stretch * length + length, DEPTH):
        pixels = _moved(x, first, tap, c0, H, W, C, SIZE, STRIDE).reshape(DEPTH, INPUTS)
        total = tl.dot(slope.load([first, o0]).T, pixels, total)
    places = (o0 + tl.arange(0, OUTPUTS))[:, None] * (SIZE * SIZE * C) + tap * C + c0 + tl.arange(0, INPUTS)[None, :]
    if IS_SPLIT:
        own = tl.arange(0, OUTPUTS)[:, None] * INPUTS + tl.arange(0, INPUTS)[None, :]
        all_of_tile = parts + tile * stretches * (OUTPUTS * INPUTS) + own
        tl.store(all_of_tile + stretch * (OUTPUTS * INPUTS), total)
        if is_last(counters + tile, stretches):
            total = tl.zeros([OUTPUTS, INPUTS], tl.float32)
            for each in range(stretches):
                total += tl.load(all_of_tile + each * (OUTPUTS * INPUTS), cache_modifier=".cg")
            tl.store(of_w + places, total.to(of_w.dtype.element_ty))
    else:
        tl.store(of_w + places, total.to(of_w.dtype.element_ty))


@triton.jit
def _moved(
    x, first, tap, c0,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """What a tap sees of x from the pixel ``first`` on: a box, of every other row and column where the stride is 2."""
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
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr,
    PIXELS: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    """A convolution of 3 × 3 from few channels: all that a pixel sees at once, up to PATCH values."""
    m, n, k = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, O), tl.arange(0, PATCH)
    weights = tl.load(w + n[None, :] * (9 * C) + k[:, None], mask=(k < 9 * C)[:, None], other=0.0)
    found = tl.dot(_patches(x, m, k, pixels, H, W, C), weights)
    tl.store(y + m[:, None] * O + n[None, :], found.to(y.dtype.element_ty), mask=(m < pixels)[:, None])


@triton.jit
def stem_weights_kernel(
    x, slope, of_w, parts, counters, pixels, length, stretches,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, O: tl.constexpr,
    PIXELS: tl.constexpr, PATCH: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The slopes of its weights, (O, 3, 3, C); stretches of pixels are added up as in `weights_kernel`."""
    n, k = tl.arange(0, O), tl.arange(0, PATCH)
    total = tl.zeros([O, PATCH], tl.float32)
    for first in range(tl.program_id(0) * length, tl.program_id(0) * length + length, PIXELS):
        m = first + tl.arange(0, PIXELS)
        slopes = tl.load(slope + m[:, None] * O + n[None, :], mask=(m < pixels)[:, None], other=0.0)
        total = tl.dot(slopes.T, _patches(x, m, k, pixels, H, W, C), total)
    own = n[:, None] * PATCH + k[None, :]
    tl.store(parts + tl.program_id(0) * (O * PATCH) + own, total)
    if is_last(counters, stretches):
        total = tl.zeros([O, PATCH], tl.float32)
        for each in range(0, stretches, AT_ONCE):
            numbers = each + tl.arange(0, AT_ONCE)[:, None, None]
            found = tl.load(
                parts + numbers * (O * PATCH) + own[None, :, :], mask=numbers < stretches, other=0.0,
                cache_modifier=".cg",
            )  # fmt: skip
            total += tl.sum(found, 0)
        tl.store(of_w + n[:, None] * (9 * C) + k[None, :], total.to(of_w.dtype.element_ty), mask=(k < 9 * C)[None, :])


@triton.jit
def _patches(x, m, k, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr):
    """The values around each pixel, in the order of the weights."""
    down, right, c = k // (3 * C) - 1, k // C % 3 - 1, k % C
    rows, columns = (m // W % H)[:, None] + down[None, :], (m % W)[:, None] + right[None, :]
    inside = (rows >= 0) & (rows < H) & (columns >= 0) & (columns < W) & (m < pixels)[:, None] & (k < 9 * C)[None, :]
    places = (m[:, None] + (down * W + right)[None, :]) * C + c[None, :]
    return tl.load(x + places, mask=inside, other=0.0)
