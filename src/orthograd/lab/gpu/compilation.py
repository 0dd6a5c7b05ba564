"""Forward pass and loss, compiled by PyTorch where possible."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from ..training.config import Config
from ..training.methods import Method
from ..training.steps import loss

Network = Callable[[Tensor], Tensor]
Compute = Callable[[Network, Tensor, Tensor, Method], Tensor]
Forward = Callable[[nn.Module, Tensor], Tensor]

FORMS = 256


def autocast(precision: str) -> torch.autocast:
    """Autocast to bfloat16 for precision "bf16", otherwise disabled."""
    # Without its cache, which would outlive a captured graph.
    return torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def forward_and_loss(config: Config, *, is_compiled: bool) -> Compute:
    """Function that computes the loss of a batch; compiled if possible."""
    name = config.precision

    def plain(model: Network, images: Tensor, targets: Tensor, method: Method) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(method, logits.float(), targets)

    if not is_compiled:
        return plain
    fused = _compiled_loss(name)

    def compiled(model: Network, images: Tensor, targets: Tensor, method: Method) -> Tensor:
        return fused(model, images, targets, method.smoothing, method.focus)

    return _or_plain(compiled, plain)


def forward(config: Config, *, is_compiled: bool) -> Forward:
    """Function that computes the logits of a batch in float32; compiled if possible."""
    plain = _forward(config.precision)
    return _or_plain(_compiled_forward(config.precision), plain) if is_compiled else plain


def _or_plain(compiled: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(*arguments: object) -> Tensor:
        try:
            return compiled(*arguments)
        except _not_compiled() as error:
            warnings.warn(f"continuing without compiled kernels, more slowly: {error}", stacklevel=2)
            return plain(*arguments)

    return compute


def _not_compiled() -> tuple[type[Exception], ...]:
    """Exceptions that PyTorch raises without a compiler or Triton, or on a GPU too old for it."""
    known = torch._dynamo.exc
    return known.BackendCompilerFailed, getattr(known, "ShortenTraceback", known.BackendCompilerFailed)


@lru_cache  # per process, like torch.compile's own cache: a new function object would be compiled again
def _compiled_loss(name: str) -> Callable[[Network, Tensor, Tensor, float, float], Tensor]:
    """One per precision: methods with the same loss and networks of the same model share its compiled code."""

    def compute(model: Network, images: Tensor, targets: Tensor, smoothing: float, focus: float) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(Method("", "", smoothing=smoothing, focus=focus), logits.float(), targets)

    return _compiled(compute)


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    fused = torch.compile(function, dynamic=False)

    def compute(*arguments: object) -> Tensor:
        _allow_many_forms()
        result: Tensor = fused(*arguments)
        return result

    return compute


def _allow_many_forms() -> None:
    """Raise dynamo's recompile limit: networks, precisions and losses are recompilations of one function.

    Beyond its default of 8, dynamo does not compile. Training would be slower and give other bits than alone in a
    process. Since PyTorch 2.12 each thread has its own limit.
    """
    limits = torch._dynamo.config
    name = "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit"  # its name before 2.6
    if getattr(limits, name) < FORMS:
        setattr(limits, name, FORMS)


def _forward(name: str) -> Forward:
    def compute(model: nn.Module, images: Tensor) -> Tensor:
        with autocast(name):
            logits: Tensor = model(images)
        return logits.float()

    return compute


@lru_cache  # per process, like `_compiled_loss`
def _compiled_forward(name: str) -> Forward:
    return _compiled(_forward(name))
