"""StableMax of Prieto et al. (2025): probabilities like softmax's, and a cross-entropy that does not collapse to zero.

    s(x) = x + 1 where x ≥ 0, 1 / (1 − x) below          probability of class i = s(xᵢ) / Σⱼ s(xⱼ)

Softmax in float32 has a loss of exactly zero once the correct logit leads by about 17, and no gradient for that logit.
s grows linearly, so StableMax does not get there. Half precision is computed in float32, and nothing in float64 but
float64 itself.

Reference: Prieto, Barsbey, Mediano and Birdal, "Grokking at the Edge of Numerical Stability", ICLR 2025.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["log_stablemax", "stablemax", "stablemax_cross_entropy"]


def stablemax(logits: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the probabilities s(xᵢ) / Σⱼ s(xⱼ), to a few units in the last place.

    Args:
        logits: of any shape, floating point.
        dim: the dimension of the classes.
        dtype: of the result, and of the computation if it is wider. None: that of the logits.

    Logits of −inf get probability 0. As with `torch.softmax`, +inf and NaN make their row NaN, and integers raise.

    >>> stablemax(torch.tensor([1.0, 0.0, -1.0, -1.0]))  # s is 2, 1, 1/2 and 1/2
    tensor([0.5000, 0.2500, 0.1250, 0.1250])
    """
    return _computed(_StableMax, torch.softmax, logits, dim, dtype)


def log_stablemax(logits: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the logarithm of `stablemax`, to a few units in the last place, those of probabilities near 1 included.

    Softmax of the result is `stablemax`: functions that expect logits can be given it. Arguments as in `stablemax`.

    >>> log_stablemax(torch.tensor([1e12, -1e12]))  # softmax, and this in the obvious way, has 0 in the first place
    tensor([-1.0000e-24, -5.5262e+01])
    """
    return _computed(_LogStableMax, torch.log_softmax, logits, dim, dtype)


def stablemax_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return torch's `cross_entropy`, with `stablemax` in place of softmax.

    Args:
        input: logits (N, C, …), or (C,) for one sample.
        target: class indices (N, …), or probabilities of the shape of ``input``.
        weight: a weight for each class (C,).
        ignore_index: class index whose samples count for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: at most 1, share of the target that is spread over all classes. As in torch, a negative value
            and NaN count as 0.

    Raises:
        RuntimeError, IndexError, ValueError, TypeError: where torch's cross_entropy does, for the same arguments.

    torch's deprecated ``size_average``, ``reduce`` and ``reduction="elementwise_mean"`` do not exist here.

    >>> logits = torch.tensor([[1.0, 0.0, -1.0, -1.0]])
    >>> stablemax_cross_entropy(logits, torch.tensor([0]))  # log 2
    tensor(0.6931)
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    for name, given in (("input", input), ("target", target), ("weight", weight)):
        if not isinstance(given, Tensor) and (name != "weight" or given is not None):
            raise TypeError(f"expected {name} to be a Tensor, got {type(given).__name__}")
    if label_smoothing > 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    dim = 0 if input.ndim == 1 else 1
    has_probabilities = target.shape == input.shape
    if has_probabilities:  # torch decides by the shape, too
        _check_probabilities(input, target, weight, dim, ignore_index)
    logs = log_stablemax(input, dim, dtype=_at_least_float32(input.dtype))
    result = torch.float32 if _is_autocast(input) else input.dtype
    if has_probabilities:
        loss = _with_probabilities(logs, target, weight, dim, reduction, label_smoothing)
        for given in (target, weight):
            result = result if given is None else torch.promote_types(result, given.dtype)
        return loss.to(result)
    if weight is not None:
        weight = _checked(weight, result).to(logs.dtype)
    loss = functional.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if label_smoothing > 0:
        uniform = _uniform_loss(logs, target, weight, dim, ignore_index, reduction)
        loss = (1 - label_smoothing) * loss + _share(label_smoothing, input.shape[dim]) * uniform
    return loss.to(result)


def _check_probabilities(input: Tensor, target: Tensor, weight: Tensor | None, dim: int, ignore_index: int) -> None:
    if not target.is_floating_point():
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {target.dtype}")
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    if weight is not None and weight.shape != (classes := input.size(dim),):
        raise RuntimeError(f"expected a weight of shape ({classes},), got {tuple(weight.shape)}")


def _checked(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight; half precision is computed in float32, so that torch would miss a dtype that differs."""
    if (torch.float32 if _is_autocast(weight) else weight.dtype) != dtype:
        raise RuntimeError(f"expected scalar type {dtype} but found {weight.dtype}")
    return weight


def _with_probabilities(
    logs: Tensor, target: Tensor, weight: Tensor | None, dim: int, reduction: str, smoothing: float
) -> Tensor:
    if smoothing > 0:
        wide = target.to(torch.promote_types(target.dtype, logs.dtype))
        target = wide * (1 - smoothing) + _share(smoothing, logs.shape[dim])
    products = logs * target * _along(weight, logs, dim)
    if reduction == "none":
        return -products.sum(dim)
    # As in torch, the mean is over samples, whatever their weights, and NaN without classes.
    samples = products.numel() // products.shape[dim] if products.numel() else 0
    return -products.sum() / (samples if reduction == "mean" else 1)


def _share(smoothing: float, classes: int) -> float:
    """The share of each class in the label smoothing."""
    return smoothing / classes if classes else math.inf


def _uniform_loss(
    logs: Tensor, target: Tensor, weight: Tensor | None, dim: int, ignore_index: int, reduction: str
) -> Tensor:
    """The sum of the losses of all classes, reduced as the loss of the target is."""
    is_ignored = target == ignore_index
    losses = -(logs * _along(weight, logs, dim)).sum(dim).masked_fill(is_ignored, 0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if weight is None:
        return losses.sum() / (~is_ignored).sum()
    weights = weight.gather(0, target.masked_fill(is_ignored, 0).flatten())
    return losses.sum() / weights.masked_fill(is_ignored.flatten(), 0).sum()


def _along(weight: Tensor | None, logs: Tensor, dim: int) -> Tensor | int:
    """The weights of the classes in a shape that broadcasts with the logits."""
    return 1 if weight is None else weight.view(-1, *[1] * (logs.ndim - dim - 1))


def _computed(function: Any, like: Any, logits: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """The function of the logits in float32 or float64, rounded once to the dtype of the result."""
    result = dtype or (torch.float32 if _is_autocast(logits) else logits.dtype)
    wide = torch.promote_types(logits.dtype, _at_least_float32(result))
    if not wide.is_floating_point or logits.numel() == 0:
        return like(logits, dim, dtype=dtype)  # type: ignore[no-any-return]  # an empty tensor, or torch's error
    # Contiguous, as torch's softmax is: nll_loss has no gradient for other log-probabilities of images.
    return function.apply(logits.to(wide).contiguous(), dim).to(result)  # type: ignore[no-any-return]


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype


def _is_autocast(logits: Tensor) -> bool:
    """True where torch's softmax of these logits is in float32."""
    return torch.is_autocast_enabled(logits.device.type) and logits.dtype in (torch.float16, torch.bfloat16)


class _LogStableMax(torch.autograd.Function):
    """log_stablemax, with a gradient that does not cancel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        ratio, rest = _ratios(x, dim)
        top = x.amax(dim, keepdim=True)
        # A ratio that underflows is the difference of two logarithms far apart. Elsewhere they could cancel.
        log_ratio = torch.where(ratio >= torch.finfo(x.dtype).tiny, ratio.log(), _log_s(x) - _log_s(top))
        return log_ratio - rest.log1p()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _pulled_back(gradient, ctx.saved_tensors[0], ctx.dim), None


class _StableMax(torch.autograd.Function):
    """stablemax, with the same gradient: dp = p d(log p)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        ratio, rest = _ratios(x, dim)
        return ratio / (1 + rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, probabilities = ctx.saved_tensors
        return _pulled_back(gradient * probabilities, x, ctx.dim), None


def _ratios(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """s(x) / s(m) for the largest logit m, and the sum of these ratios without that of m itself.

    Probabilities are ratio / (1 + rest). The largest has log p = −log1p(rest), exact however near to 1 it is.
    """
    top, place = x.max(dim, keepdim=True)
    # s(x) = (1 + x⁺) / (1 + x⁻). Neither quotient overflows, nor is any s so small that it loses digits.
    ratio = (1 + x.relu()) / (1 + top.relu()) * ((1 + (-top).relu()) / (1 + (-x).relu()))
    is_top = torch.zeros_like(x).scatter(dim, place, 1)
    return ratio, (ratio - is_top).sum(dim, keepdim=True)  # 1 − 1, or NaN


def _log_s(x: Tensor) -> Tensor:
    """log s(x), an odd function: log s(−x) = −log s(x)."""
    return x.relu().log1p() - (-x).relu().log1p()


def _pulled_back(gradient: Tensor, x: Tensor, dim: int) -> Tensor:
    """(gₖ (1 − pₖ) − pₖ Σ_{j≠k} gⱼ) / (1 + |xₖ|): the gradient of the logits, if g is that of log p.

    The obvious gₖ − pₖ Σⱼ gⱼ is exactly zero for the class of a sample once its probability rounds to 1.
    """
    ratio, rest = _ratios(x, dim)
    own = (1 - ratio + rest) / (1 + rest)  # 1 − p
    others = gradient.sum(dim, keepdim=True) - gradient
    return (gradient * own - ratio / (1 + rest) * others) / (1 + x.abs())
