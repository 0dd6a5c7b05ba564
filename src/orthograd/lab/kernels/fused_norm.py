"""Launches and derivatives of the BatchNorm kernels."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...engine.compilation import launch
from .eligible import Statistics
from .norm_triton import input_gradient_kernel, normalize_kernel, statistics_kernel, sums_kernel

BLOCKS, SHARE = 256, 8192
"""Thread blocks of a launch that sums, about two per multiprocessor of an H200; or values per thread block, if that
gives more blocks and `PARTS` allows it (`benchmarks/norm_sums.py`)."""
PARTS = 128
"""Most partial sums of a channel: the last thread block adds them alone."""
SUMMED, CHANGED = (1024, 32, 2), (4096, 64, 4)
"""Values per thread block, its channels and its warps, for sums over channels and for changes of values."""
COUNTERS: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()
"""Counters of finished thread blocks per norm: a norm is used on one stream at a time."""
Gradients = tuple[Tensor | None, ...]


def fused_norm(
    norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None, *, relu: bool, statistics: Statistics | None = None
) -> tuple[Tensor, Tensor]:
    """relu(norm(x) + plus) or norm(x) + plus, twice: the kernels add the gradients of both."""
    if not norm.training:
        _, y = _evaluated(norm, x, plus, relu=relu, sums=False)
        return y, y
    _count(norm)
    return _Norm.apply(x, plus, norm.weight, norm.bias, norm, relu, statistics)  # type: ignore[no-untyped-call, no-any-return]


def fused_sum_norm(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sum x + plus, and relu(norm(x + plus))."""
    if not norm.training:
        return _evaluated(norm, x, plus, relu=True, sums=plus is not None)
    _count(norm)
    return _SumNorm.apply(x, plus, norm.weight, norm.bias, norm)  # type: ignore[no-untyped-call, no-any-return]


def _evaluated(
    norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None, *, relu: bool, sums: bool
) -> tuple[Tensor, Tensor]:
    """x, or x + plus if ``sums``, and its normalized output by the running statistics, in one launch."""
    plus, y, total = _alike(plus, x), torch.empty_like(x), torch.empty_like(x) if sums else x
    tile = _tile(CHANGED, x.shape[1])
    size = x.numel() // x.shape[1], x.shape[1]
    launch(
        normalize_kernel, _grid(size, tile),
        x, plus, total, y, norm.weight, norm.bias, norm.running_mean, norm.running_var, *size, norm.eps,
        *tile, plus is not None and not sums, relu, sums, True, num_warps=CHANGED[2],
    )  # fmt: skip
    return total, y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        plus: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        relu: bool,
        statistics: Statistics | None,
    ) -> tuple[Tensor, Tensor]:
        launches = Launches(x, norm)
        mean, scale = statistics or launches.statistics(x, None)[:2]
        y = launches.normalized(x, plus, mean, scale, relu=relu)
        ctx.save_for_backward(x, None if plus is None else y, weight, bias, mean, scale)
        ctx.launches, ctx.relu = launches, relu
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor | None, other: Tensor | None) -> Gradients:
        if gradient is None:
            gradient, other = other, None
        if gradient is None:
            return (None,) * 7
        x, y, *line = ctx.saved_tensors
        return *ctx.launches.gradients((gradient, other), x, y, None, *line, relu=ctx.relu), None, None, None


class _SumNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plus: Tensor | None, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d
    ) -> tuple[Tensor, Tensor]:
        launches = Launches(x, norm)
        mean, scale, total = launches.statistics(x, plus)
        y = launches.normalized(total, None, mean, scale, relu=True)
        ctx.save_for_backward(total, weight, bias, mean, scale)
        ctx.launches, ctx.has_plus = launches, plus is not None
        ctx.set_materialize_grads(False)
        return total.view_as(total), y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, beside: Tensor | None, gradient: Tensor | None) -> Gradients:
        if gradient is None:
            return beside, beside if ctx.has_plus else None, None, None, None
        total, *line = ctx.saved_tensors
        input_gradient, _, *others = ctx.launches.gradients((gradient, None), total, None, beside, *line, relu=True)
        return input_gradient, input_gradient if ctx.has_plus else None, *others, None


class Launches:
    """The four launches of a norm for values of one shape, and their buffers."""

    def __init__(self, x: Tensor, norm: nn.BatchNorm2d) -> None:
        self._norm, channels = norm, x.shape[1]
        pixels = x.numel() // channels
        (rows, columns), changed = _tile(SUMMED, channels), _tile(CHANGED, channels)
        widths = -(-channels // columns)
        wanted = min(PARTS, max(1, BLOCKS // widths, x.numel() // (SHARE * widths)), -(-pixels // rows))
        length = -(-pixels // (wanted * rows)) * rows
        stretches = -(-pixels // length)
        self._size = pixels, channels, stretches, length
        self._by_stretch, self._tile = (stretches, widths), (PARTS, rows, columns)
        self._by_tile, self._changed = _grid((pixels, channels), changed), changed
        self._parts = x.new_empty(2, stretches, channels, dtype=torch.float32)
        self._counters = _counters(norm, x)

    def statistics(self, x: Tensor, plus: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and 1 / standard deviation of each channel of x + plus, and that sum; updates the running statistics."""
        norm, (mean, scale) = self._norm, _per_channel(x)
        plus = _alike(plus, x)
        total = x if plus is None else torch.empty_like(x)
        launch(
            statistics_kernel, self._by_stretch,
            x, plus, total, norm.running_mean, norm.running_var, mean, scale, self._parts, self._counters,
            *self._size, norm.eps, norm.momentum, *self._tile, plus is not None, num_warps=SUMMED[2],
        )  # fmt: skip
        return mean, scale, total

    def normalized(self, x: Tensor, plus: Tensor | None, mean: Tensor, scale: Tensor, *, relu: bool) -> Tensor:
        """relu(norm(x) + plus), or without ReLU."""
        y, plus = torch.empty_like(x), _alike(plus, x)
        norm, flags = self._norm, (plus is not None, relu, False, False)
        launch(
            normalize_kernel, self._by_tile,
            x, plus, None, y, norm.weight, norm.bias, mean, scale, *self._size[:2], norm.eps, *self._changed, *flags,
            num_warps=CHANGED[2],
        )  # fmt: skip
        return y

    def gradients(
        self,
        outputs: tuple[Tensor, Tensor | None],
        x: Tensor,
        y: Tensor | None,
        beside: Tensor | None,
        *line: Tensor,
        relu: bool,
    ) -> Gradients:
        """Gradients of x, of ``plus`` (if y, the output, is given), of weight and of bias.

        ``outputs`` are the gradients of the output: two if it was used twice.
        """
        gradient, other, beside = (_alike(each, x) for each in (*outputs, beside))
        weight_gradient, bias_gradient = _per_channel(x)
        given, flags = (gradient, other, x, y), (other is not None, y is not None, relu)
        launch(
            sums_kernel, self._by_stretch,
            *given, *line, weight_gradient, bias_gradient, self._parts, self._counters, *self._size, *self._tile,
            *flags, num_warps=SUMMED[2],
        )  # fmt: skip
        input_gradient, plus_gradient = torch.empty_like(x), None if y is None else torch.empty_like(x)
        launch(
            input_gradient_kernel, self._by_tile,
            *given, beside, *line, weight_gradient, bias_gradient, input_gradient, plus_gradient,
            *self._size[:2], *self._changed, *flags, beside is not None, num_warps=CHANGED[2],
        )  # fmt: skip
        return input_gradient, plus_gradient, weight_gradient, bias_gradient


def _count(norm: nn.BatchNorm2d) -> None:
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)


def _counters(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Zeros, made once: the kernels reset them to zero."""
    kept = COUNTERS.get(norm)
    if kept is None or kept.device != x.device:
        kept = COUNTERS[norm] = torch.zeros(x.shape[1], dtype=torch.int32, device=x.device)
    return kept


def _tile(sizes: tuple[int, int, int], channels: int) -> tuple[int, int]:
    """Pixels and channels of a thread block; fewer channels if these divide all channels."""
    values, most, _ = sizes
    columns = next((count for count in (most, 32, 16) if count <= most and channels % count == 0), most)
    return values // columns, columns


def _grid(size: tuple[int, int], tile: tuple[int, int]) -> tuple[int, int]:
    return -(-size[0] // tile[0]), -(-size[1] // tile[1])


def _per_channel(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[1], dtype=torch.float32), x.new_empty(x.shape[1], dtype=torch.float32)


def _alike(values: Tensor | None, x: Tensor) -> Tensor | None:
    """The values in the dtype and memory order of x."""
    return None if values is None else values.to(x.dtype).contiguous(memory_format=torch.channels_last)
