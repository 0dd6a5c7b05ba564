"""relu(norm(x) + y) at once: by Triton kernels where a GPU trains, by PyTorch's own elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

Ways = tuple[Tensor, Tensor]
"""The same values for two that use them, so that what slopes they give is added up where it is needed."""
PROGRAMS = 264
"""Wanted of a launch that adds up: two for each multiprocessor of an H200."""
PARTS = 256
"""Stretches of a channel, at most."""
SUMMED, CHANGED = (8192, 8), (4096, 4)
"""Values that a program takes at a time, and its warps: where channels are added up, and where values are changed."""


def norm_relu(
    norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None = None, *, relu: bool = True
) -> tuple[Tensor, Tensor]:
    """relu(norm(x) + plus), both ways."""
    if is_fused(norm, x):
        return _Plus.apply(x, plus, norm.weight, norm.bias, norm, relu)  # type: ignore[no-untyped-call, no-any-return]
    y = norm(x) if plus is None else norm(x) + plus
    y = functional.relu(y) if relu else y
    return y, y


def sum_norm_relu(norm: nn.BatchNorm2d, x: Tensor, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum x + plus, and relu(norm(x + plus))."""
    if is_fused(norm, x):
        return _Sum.apply(x, plus, norm.weight, norm.bias, norm)  # type: ignore[no-untyped-call, no-any-return]
    total = x if plus is None else x + plus
    return total, functional.relu(norm(total))


def walked(
    layers: nn.Sequential, x: Tensor, plus: Tensor | None = None, *, relu: bool = False
) -> tuple[Tensor, Tensor]:
    """Layer by layer, each norm with the ReLU behind it; to the last layer, a norm, more may be added, and a ReLU."""
    steps = list(layers)
    pair = x, x
    for index, layer in enumerate(steps):
        if isinstance(layer, nn.BatchNorm2d):
            is_last = index == len(steps) - 1
            pair = norm_relu(
                layer, pair[0], plus if is_last else None, relu=relu if is_last else _is_relu(steps[index + 1])
            )
        elif not isinstance(layer, nn.ReLU):
            y = layer(pair[0])
            pair = y, y
    return pair


def _is_relu(layer: nn.Module) -> bool:
    return isinstance(layer, nn.ReLU)


def is_fused(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Whether the kernels do what is asked: training, on a GPU, with channels last."""
    return norm.training and x.is_cuda and x.is_contiguous(memory_format=torch.channels_last)


class _Plus(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plus: Tensor | None, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, relu: bool
    ) -> tuple[Tensor, Tensor]:
        work = Work(x, norm)
        mean, scale, _ = work.statistics(x, None)
        y = work.normalised(x, plus, mean, scale, relu=relu)
        ctx.save_for_backward(x, None if plus is None else y, mean, scale)
        ctx.work, ctx.relu = work, relu
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slope: Tensor | None, other: Tensor | None) -> tuple[Tensor | None, ...]:
        if slope is None:
            slope, other = other, None
        if slope is None:
            return None, None, None, None, None, None
        x, y, mean, scale = ctx.saved_tensors
        return *ctx.work.slopes(slope, other, x, y, None, mean, scale, relu=ctx.relu), None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plus: Tensor | None, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d
    ) -> tuple[Tensor, Tensor]:
        work = Work(x, norm)
        mean, scale, total = work.statistics(x, plus)
        y = work.normalised(total, None, mean, scale, relu=True)
        ctx.save_for_backward(total, mean, scale)
        ctx.work, ctx.has_plus = work, plus is not None
        ctx.set_materialize_grads(False)
        return total.view_as(total), y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, beside: Tensor | None, slope: Tensor | None) -> tuple[Tensor | None, ...]:
        if slope is None:
            return beside, beside if ctx.has_plus else None, None, None, None
        total, mean, scale = ctx.saved_tensors
        found, _, *others = ctx.work.slopes(slope, None, total, None, beside, mean, scale, relu=True)
        return found, found if ctx.has_plus else None, *others, None


class Work:
    """The launches of a norm for values of one shape, and the memory between them."""

    def __init__(self, x: Tensor, norm: nn.BatchNorm2d) -> None:
        self.norm, self.channels = norm, x.shape[1]
        self.pixels = x.numel() // self.channels
        # As many channels side by side as make whole cache lines, if that leaves none over.
        self.columns = next((n for n in (64, 32, 16) if self.channels % n == 0), 64)
        self.blocks = -(-self.channels // self.columns)
        self.rows = SUMMED[0] // self.columns
        stretches = min(PARTS, max(1, PROGRAMS // self.blocks), -(-self.pixels // self.rows))
        self.stretch = -(-self.pixels // stretches // self.rows) * self.rows
        self.stretches = -(-self.pixels // self.stretch)
        self.size = self.pixels, self.channels, self.stretches, self.stretch
        self.tile = PARTS, self.rows, self.columns
        self.parts = x.new_empty(2, self.stretches, self.channels, dtype=torch.float32)
        self.counters = _counters(norm, x)
        rows = CHANGED[0] // self.columns
        self.whole = (-(-self.pixels // rows), self.blocks), (rows, self.columns)

    def statistics(self, x: Tensor, plus: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and 1/deviation of each channel of x + plus, and that sum; the norm's running statistics follow."""
        from .norm_kernels import statistics_kernel

        norm, (mean, scale) = self.norm, self._vectors(x)
        plus = plus if plus is None else _alike(plus, x)
        total = x if plus is None else torch.empty_like(x)
        statistics_kernel[self.stretches, self.blocks](
            x, plus, total, norm.running_mean, norm.running_var, mean, scale, self.parts, self.counters,
            *self.size, norm.eps, norm.momentum, *self.tile, plus is not None, num_warps=SUMMED[1],
        )  # fmt: skip
        return mean, scale, total

    def normalised(self, x: Tensor, plus: Tensor | None, mean: Tensor, scale: Tensor, *, relu: bool) -> Tensor:
        """relu(norm(x) + plus)."""
        from .norm_kernels import normalise_kernel

        y, (grid, sizes) = torch.empty_like(x), self.whole
        plus = plus if plus is None else _alike(plus, x)
        line = self.norm.weight, self.norm.bias, mean, scale
        normalise_kernel[grid](
            x, plus, y, *line, self.pixels, self.channels, *sizes, plus is not None, relu, num_warps=CHANGED[1]
        )
        return y

    def slopes(
        self,
        slope: Tensor,
        other: Tensor | None,
        x: Tensor,
        y: Tensor | None,
        beside: Tensor | None,
        mean: Tensor,
        scale: Tensor,
        *,
        relu: bool,
    ) -> tuple[Tensor | None, ...]:
        """Of x, of what was added behind the norm (if y is given), of weight and bias."""
        from .norm_kernels import slopes_kernel, sums_kernel

        slope = _alike(slope, x)
        other, beside = (each if each is None else _alike(each, x) for each in (other, beside))
        of_weight, of_bias = self._vectors(x)
        line, flags = (self.norm.weight, self.norm.bias, mean, scale), (other is not None, y is not None, relu)
        sums_kernel[self.stretches, self.blocks](
            slope,
            other,
            x,
            y,
            *line,
            of_weight,
            of_bias,
            self.parts,
            self.counters,
            *self.size,
            *self.tile,
            *flags,
            num_warps=SUMMED[1],
        )
        of_x, of_plus, (grid, sizes) = torch.empty_like(x), None if y is None else torch.empty_like(x), self.whole
        slopes_kernel[grid](
            slope, other, x, y, beside, *line, of_weight, of_bias, of_x, of_plus, *self.size[:2], *sizes, *flags,
            beside is not None, num_warps=CHANGED[1],
        )  # fmt: skip
        return of_x, of_plus, of_weight, of_bias

    def _vectors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_empty(self.channels, dtype=torch.float32), x.new_empty(self.channels, dtype=torch.float32)


def _counters(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Zeros, made once: the kernels leave zeros."""
    kept = getattr(norm, "_counters", None)
    if kept is None or kept.device != x.device:
        kept = norm._counters = torch.zeros(x.shape[1], dtype=torch.int32, device=x.device)  # type: ignore[assignment]
    return kept


def _alike(values: Tensor, x: Tensor) -> Tensor:
    """The same in the dtype and order of x."""
    return values.to(x.dtype).contiguous(memory_format=torch.channels_last)
