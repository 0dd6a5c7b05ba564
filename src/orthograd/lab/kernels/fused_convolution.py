"""Launches and derivatives of the convolution kernels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from ...engine.compilation import launch
from .convolution_triton import (
    adding_kernel,
    convolution_kernel,
    merging_kernel,
    spreading_kernel,
    stem_kernel,
    stem_weight_gradient_kernel,
    transposing_kernel,
    weight_gradient_kernel,
    wide_kernel,
)
from .eligible import ALIGNED, SPREAD, Statistics, Tile, backward_ways, is_norm_fused, is_stem, tile_of, weights_tile_of

BLOCKS = 132
"""Approximate number of thread blocks for weight gradients: one per multiprocessor of an H200."""
SHORTEST = 256
"""Fewest pixels of a stretch."""
DEPTH = 128
"""Bytes of channels (or pixels) multiplied at a time, if that divides all channels."""
SQUARE = 64
"""Side of the square of weights that a thread block transposes."""
STEM_PIXELS, STEM_PATCH = 128, 32
"""Pixels per thread block of the first convolution, and values in a patch, as a power of two."""
ADDED, AT_ONCE = 4096, 16
"""Numbers that a thread block sums for weight gradients, and the most stretches at a time."""
MERGED = 16, 256
"""Channels whose statistics a thread block merges, and tiles at a time."""
DROPPED = 2**-10 / (2 * math.log(2))
"""Mean relative loss of a product in TF32. The GPU truncates each factor instead of rounding it. On average that loses
one part in 2^12 ln 2, since leading digits follow Benford's law."""
NO_LINE = None, None, None, None, 0.0
"""Arguments of a launch without a fused norm."""


def fused_convolution(layer: nn.Conv2d, x: Tensor, norm: nn.Module | None = None) -> tuple[Tensor, Statistics | None]:
    """The convolution by these kernels, and its statistics if the following BatchNorm can use them."""
    weight = _weight_of(layer, x)
    y, *statistics = _Convolution.apply(x, weight, layer, norm)  # type: ignore[no-untyped-call]
    return y, (statistics[0], statistics[1]) if statistics else None


def _weight_of(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return layer.weight.to(x.dtype).contiguous(memory_format=torch.channels_last)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: nn.Conv2d, norm: nn.Module | None) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        y, *statistics = values(layer, x, weight, norm)
        ctx.mark_non_differentiable(*statistics)
        return y, *statistics

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor, *_: None) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.to(x.dtype).contiguous(memory_format=torch.channels_last)
        if gradient.data_ptr() % ALIGNED:
            gradient = gradient.clone(memory_format=torch.channels_last)
        return *gradients(ctx.layer, gradient, x, weight, wanted=ctx.needs_input_grad[:2]), None, None


def values(layer: nn.Conv2d, x: Tensor, weight: Tensor, norm: nn.Module | None = None) -> tuple[Tensor, ...]:
    """Output, and the mean and 1 / standard deviation of its channels if the norm after it trains by kernels."""
    return (_stem(x, weight),) if is_stem(layer) else _forward(x, weight, layer.stride[0], norm)


def gradients(
    layer: nn.Conv2d, output_gradient: Tensor, x: Tensor, weight: Tensor, *, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Input and weight gradient, as far as wanted: by these kernels where they are faster, otherwise by cuDNN."""
    ours = tuple(each and is_ours for each, is_ours in zip(wanted, backward_ways(layer, x.dtype), strict=True))
    input_gradient = weight_gradient = None
    if ours[0]:
        input_gradient = _input_gradient(output_gradient, weight, layer.stride[0])
    if ours[1] and is_stem(layer):
        weight_gradient = _stem_weight_gradient(output_gradient, x, weight)
    elif ours[1]:
        weight_gradient = _weight_gradient(output_gradient, x, weight, layer.stride[0])
    if ours != wanted:
        left = [each and not own for each, own in zip(wanted, ours, strict=True)]
        form = [*layer.stride], [*layer.padding], [*layer.dilation], False, [0, 0], layer.groups
        by_cudnn = torch.ops.aten.convolution_backward(output_gradient, x, weight, None, *form, [*left, False])
        input_gradient = by_cudnn[0] if left[0] else input_gradient
        weight_gradient = by_cudnn[1] if left[1] else weight_gradient
    return input_gradient, weight_gradient


def _forward(x: Tensor, weight: Tensor, stride: int, norm: nn.Module | None = None) -> tuple[Tensor, ...]:
    y, tile = _placed(x, weight, stride)
    pixels, outputs = y.numel() // y.shape[1], y.shape[1]
    stretches = -(-pixels // tile.first)
    if norm is None or not norm.training or not is_norm_fused(norm, y):
        _convolve(x, weight, stride, y, tile)
        return (y,)
    parts = y.new_empty(stretches, 2, outputs, dtype=torch.float32)
    _convolve(x, weight, stride, y, tile, parts=parts)
    mean, scale = (y.new_empty(outputs, dtype=torch.float32) for _ in range(2))
    launch(
        merging_kernel, (outputs // MERGED[0],),
        parts, mean, scale, norm.running_mean, norm.running_var, pixels, outputs, stretches, tile.first, norm.eps,
        norm.momentum, *MERGED,
    )  # fmt: skip
    return y, mean, scale


def evaluated(layer: nn.Conv2d, norm: nn.Module, x: Tensor, plus: Tensor | None, *, relu: bool) -> Tensor | None:
    """relu(norm(conv(x)) + plus), or without ReLU, in one launch; None if the kernels do not support the norm."""
    weight = _weight_of(layer, x)
    y, tile = _placed(x, weight, layer.stride[0])
    if norm.training or not is_norm_fused(norm, y, plus):
        return None
    if plus is not None:
        plus = plus.to(y.dtype).contiguous(memory_format=torch.channels_last)
    line = norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps
    _convolve(x, weight, layer.stride[0], y, tile, line=line, plus=plus, relu=relu)
    return y


def _placed(x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tile]:
    y = _images(len(x), len(weight), x.shape[2] // stride, x)
    return y, tile_of(y.numel() // y.shape[1], y.shape[1], weight[0].numel())


def _convolve(
    x: Tensor,
    weight: Tensor,
    stride: int,
    y: Tensor,
    tile: Tile,
    *,
    parts: Tensor | None = None,
    line: tuple[Any, ...] = NO_LINE,
    plus: Tensor | None = None,
    relu: bool = False,
) -> None:
    count, outputs, side, _ = y.shape
    shape = count, side, side, x.shape[1], outputs, weight.shape[2]
    _multiply(x, weight, tile, (y, parts, *line, plus), shape, stride, measures=parts is not None, relu=relu)


def _input_gradient(output_gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    count, outputs, side, _ = output_gradient.shape
    channels, size = weight.shape[1:3]
    input_gradient = _images(count, channels, side * stride, output_gradient)
    tile = tile_of(count * side * side, channels, outputs * size * size // (stride * stride))
    shape = count, side, side, outputs, channels, size
    is_transposed = output_gradient.dtype == torch.float32  # products in TF32 cannot transpose their operands
    weight = _transposed(weight) if is_transposed else weight
    if stride == 1:
        _multiply(output_gradient, weight, tile, (input_gradient, None, *NO_LINE, None), shape, 1, is_back=True)
        return input_gradient
    tile, depth = SPREAD if tile.more else tile, _depth(output_gradient)
    block = [tile.second, depth] if is_transposed else [depth, tile.second]
    launch(
        spreading_kernel, (4 * -(-count * side * side // tile.first) * (channels // tile.second),),
        _boxes(output_gradient, 1, tile.first, depth), _matrix(weight, block), input_gradient,
        *shape, is_transposed, _gain(output_gradient), tile.first, tile.second, depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return input_gradient


def _multiply(
    x: Tensor,
    weight: Tensor,
    tile: Tile,
    after: tuple[Any, ...],
    shape: tuple[int, ...],
    stride: int,
    *,
    is_back: bool = False,
    measures: bool = False,
    relu: bool = False,
) -> None:
    depth, is_transposed = _depth(x), is_back and x.dtype == torch.float32

    def tiles(rows: int) -> TensorDescriptor:
        return _matrix(weight, [depth, rows] if is_back and not is_transposed else [rows, depth])

    count, side, _, _, outputs, _ = shape
    blocks, boxes = -(-count * side * side // tile.first), _boxes(x, stride, tile.first, depth)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    if tile.more:
        launch(
            wide_kernel, (blocks,),
            boxes, tiles(tile.second), tiles(tile.more), *after,
            *shape, stride, is_back, measures, relu, tile.first, tile.second, tile.more, depth, **options,
        )  # fmt: skip
        return
    launch(
        convolution_kernel, (blocks * (outputs // tile.second),),
        boxes, tiles(tile.second), *after,
        *shape, stride, is_back, is_transposed, measures, relu, _gain(x), tile.first, tile.second, depth, **options,
    )  # fmt: skip


def _gain(x: Tensor) -> float:
    return 1 + DROPPED if x.dtype == torch.float32 else 1.0


def _depth(x: Tensor) -> int:
    """Channels multiplied at a time."""
    most = DEPTH // x.element_size()
    return most if x.shape[1] % most == 0 else most // 2


def _transposed(weight: Tensor) -> Tensor:
    """Weights with inputs first, as the input gradient needs them."""
    outputs, inputs, size, _ = weight.shape
    transposed = torch.empty((inputs, outputs, size, size), device=weight.device, memory_format=torch.channels_last)
    tiles = outputs // SQUARE * (inputs // SQUARE), size * size
    launch(transposing_kernel, tiles, weight, transposed, size * size, outputs, inputs, SQUARE, num_warps=8)
    return transposed


def _weight_gradient(output_gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    count, outputs, side, _ = output_gradient.shape
    inputs, size = weight.shape[1:3]
    tile, pixels, depth = weights_tile_of(inputs, outputs), count * side * side, DEPTH // x.element_size()
    tiles = outputs // tile.first * (inputs // tile.second) * size * size
    length, stretches = _stretches(pixels, max(1, min(round(BLOCKS / tiles), pixels // SHORTEST)), depth)
    weight_gradient = torch.empty_like(weight)
    parts = weight_gradient if stretches == 1 else x.new_empty(stretches, weight.numel(), dtype=torch.float32)
    matrix = output_gradient.permute(0, 2, 3, 1).reshape(pixels, outputs)
    launch(
        weight_gradient_kernel, (tiles * stretches,),
        _boxes(x, stride, depth, tile.second), TensorDescriptor.from_tensor(matrix, [depth, tile.first]), parts, length,
        side, side, inputs, outputs, size, stride, tile.first, tile.second, depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return weight_gradient if stretches == 1 else _added(parts, weight_gradient)


def _added(parts: Tensor, out: Tensor) -> Tensor:
    stretches, length = parts.shape
    at_once = min(AT_ONCE, 1 << (stretches - 1).bit_length())
    block = ADDED // at_once
    launch(adding_kernel, (-(-length // block),), parts, out, length, stretches, block, at_once, num_warps=4)
    return out


def _stem(x: Tensor, weight: Tensor) -> Tensor:
    count, channels, side, _ = x.shape
    y, pixels = _images(count, len(weight), side, x), count * side * side
    shape = side, side, channels, len(weight), _gain(x)
    launch(stem_kernel, (-(-pixels // STEM_PIXELS),), x, weight, y, pixels, *shape, STEM_PIXELS, STEM_PATCH)
    return y


def _stem_weight_gradient(output_gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    count, channels, side, _ = x.shape
    pixels, outputs = count * side * side, len(weight)
    length, stretches = _stretches(pixels, BLOCKS, STEM_PIXELS)
    parts = x.new_empty(stretches, weight.numel(), dtype=torch.float32)
    shape = side, side, channels, outputs, _gain(x)
    launch(
        stem_weight_gradient_kernel, (stretches,),
        x, output_gradient, parts, pixels, length, *shape, STEM_PIXELS, STEM_PATCH,
    )  # fmt: skip
    return _added(parts, torch.empty_like(weight))


def _images(count: int, channels: int, side: int, like: Tensor) -> Tensor:
    shape = count, channels, side, side
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _stretches(pixels: int, wanted: int, multiple: int) -> tuple[int, int]:
    """Pixels per stretch, and the number of stretches."""
    length = -(-pixels // (wanted * multiple)) * multiple
    return length, -(-pixels // length)


def _boxes(x: Tensor, stride: int, pixels: int, channels: int) -> TensorDescriptor:
    """Descriptor of boxes of whole image rows, by pixels and channels; with stride 2, odd and even pixels are split."""
    count, depth, height, width = x.shape
    rows = min(height // stride, pixels * stride // width)
    images, columns = pixels * stride // (rows * width), width // stride
    values = x.permute(0, 2, 3, 1)
    if stride == 1:
        return TensorDescriptor.from_tensor(values, [images, rows, columns, channels])
    apart = values.reshape(count, height // 2, 2, columns, 2 * depth)
    return TensorDescriptor.from_tensor(apart, [images, rows, 1, columns, channels])


def _matrix(weight: Tensor, block: list[int]) -> TensorDescriptor:
    """Descriptor of the weights as a matrix: outputs by taps and inputs."""
    return TensorDescriptor.from_tensor(weight.permute(0, 2, 3, 1).reshape(len(weight), -1), block)
